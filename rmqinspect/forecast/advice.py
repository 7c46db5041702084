"""What to do first, before a broker is started on a store: one home for every screen, page, table and document.

It follows from the prices of the choices that were worked out, and from nothing else. A start is advised only where it
loses nothing and no other choice is better. Beside a loss the first step is the choice that costs least: another exit
or release, a file moved or filled, `rebuild`, `salvage`. Where none is better, what the start would lose is saved
first.

    verdict      a better choice    what is gone already       first step
    SAFE, uncounted                 anything                   forecast
    SAFE         none               nothing                    start
    SAFE         none               segments are missing       look for them
    SAFE         none               files of config/ are       look for them
    SAFE         none               timers wait for a clock    set it back, then start
    SAFE         none               behind the log's end       look for it, then start
    any other    one                                           that choice
    LOSES        none                                          save what it loses
    EMPTY        none                                          do not start
    REFUSES      none                                          the remedy of the refusal
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

from rmqinspect.broker.clock import set_back
from rmqinspect.commands import FORECAST, REBUILD_STORE, SALVAGE, SAVE, fill_command
from rmqinspect.document import Part, means
from rmqinspect.forecast.outcome import REBUILD, Alternative, Forecast, Outcome, Verdict
from rmqinspect.forecast.words import LOOK_FOR, already_lost, is_uncounted, loss_words


class Action(StrEnum):
    """Kinds of a first step."""

    START = "start"
    LOOK = "look for what is missing"
    REBUILD = "rebuild"
    SALVAGE = "salvage"
    OTHER = "start another way"
    REMEDY = "remove what is in the way"
    CLOCK = "set the timer's clock back"
    SAVE = "save"
    ASK = "find out"
    LEAVE = "leave it"


COMMANDS: Final[Mapping[str, str]] = {
    Action.REBUILD: REBUILD_STORE,
    Action.SALVAGE: f"{SALVAGE} --dry-run",
    Action.OTHER: f"{FORECAST} --script -o start.sh",
    Action.REMEDY: FORECAST,
    Action.CLOCK: f"{FORECAST} --script -o start.sh",
    Action.SAVE: SAVE,
    Action.ASK: FORECAST,
}
"""The command for an action, a template; those that are not here have none."""


_ON_A_REPLICA = "look on a replica for the acknowledged messages behind the log's end"
_SET_BACK = "restore consumerOffset.json from a backup, or set these offsets back: rebuild --set-offsets"


class FirstStep(Part, frozen=True):
    """What to do first."""

    action: Annotated[str, means(", ".join(f"`{action}`" for action in Action))]
    text: Annotated[str, means("in words, what it costs included")]

    def command(self, stores: Sequence[str]) -> str | None:
        """Return the command for it, with the words that name the store; None where there is none."""
        template = COMMANDS.get(self.action)
        return None if template is None else fill_command(template, stores)


def first_step(found: Forecast) -> FirstStep:
    """Return what to do first about a store whose next start was worked out."""
    worst = found.worst
    if is_uncounted(worst):
        return FirstStep(Action.ASK, "count it with forecast before any start")
    best = next((way for way in found.instead if way.is_better), None)
    if best is not None:
        return _of_choice(best, worst)
    if worst.verdict is Verdict.SAFE:
        return _of_safe(worst)
    return _without_choice(worst)


def _of_choice(best: Alternative, worst: Outcome) -> FirstStep:
    """Return the step to a choice that costs less than the start as it is."""
    costs = choice_cost(best)
    if any(LOOK_FOR in text for text in already_lost(worst)):
        costs = f"{costs}; {LOOK_FOR}"
    elif worst.acknowledged is not None:
        costs = f"{costs}; {_ON_A_REPLICA} before a broker is started"
    if best.tool == REBUILD:
        return FirstStep(Action.REBUILD, f"rebuild it before any start: {costs}")
    if best.tool:
        return FirstStep(Action.SALVAGE, f"salvage it before any start: {costs}")
    return FirstStep(Action.OTHER, f"start it differently: {best.way}: {costs}")


def choice_cost(way: Alternative) -> str:
    """Return what a choice costs: `loses nothing`, or what it loses."""
    outcome = way.outcome
    if outcome.verdict is Verdict.SAFE:
        return "loses nothing"
    return f"loses {loss_words(outcome)}" if outcome.verdict is Verdict.LOSES else outcome.verdict.value.lower()


def _of_safe(worst: Outcome) -> FirstStep:
    """Return the step before a start that loses nothing, and that nothing betters."""
    if any(LOOK_FOR in text for text in already_lost(worst)):
        return FirstStep(Action.LOOK, LOOK_FOR)
    if worst.lost_config:
        files = " and ".join(worst.lost_config)
        return FirstStep(Action.LOOK, f"look for {files} in backups, and on a slave, before a broker is started")
    if worst.timer is not None and worst.timer.stuck and worst.timer.set_back is not None:
        return FirstStep(Action.CLOCK, f"{set_back(worst.timer.set_back)}; then start it")
    gone = worst.acknowledged
    if gone is None:
        return FirstStep(Action.START, "start it")
    copy = "copy the files again if the broker ran, and " if gone.may_be_copy else ""
    return FirstStep(Action.LOOK, f"{copy}{_ON_A_REPLICA}, then start it")


def _without_choice(worst: Outcome) -> FirstStep:
    """Return the step where the start costs something, and nothing that was worked out costs less."""
    if worst.verdict is Verdict.RUNS:
        return FirstStep(Action.LEAVE, "leave it: a broker runs")
    if worst.verdict is Verdict.UNKNOWN:
        return FirstStep(Action.ASK, f"do not start it before this is known: {worst.unknown}")
    if worst.refusal is not None:
        return FirstStep(Action.REMEDY, worst.refusal.remedy)
    if worst.verdict is Verdict.EMPTY:
        return FirstStep(Action.LOOK, f"do not start it: more was there, by {', '.join(worst.proofs)}")
    if worst.cuts_records or worst.losses.messages:
        return FirstStep(Action.SAVE, "save what it loses: decode --lost-at-start")
    cure = "" if worst.not_received or not worst.skipped else f": {_SET_BACK}"
    return FirstStep(Action.ASK, f"do not start it: {loss_words(worst)}{cure}")
