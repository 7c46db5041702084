"""What a page says first, for readers who know their business and not the broker's files.

    what is it         one sentence about the store, one about the next start
    what is lost, whose, since when, why
    what to do now     steps in their order, each with the command

Everything is taken from the report of `verify` and, where there is one, the document of `forecast`. Texts are plain:
they are escaped where they are printed.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from rmqinspect.commands import FORECAST, REBUILD_STORE, SALVAGE, SAVE, VERIFY, fill_command
from rmqinspect.forecast.advice import COMMANDS, Action
from rmqinspect.forecast.outcome import Verdict
from rmqinspect.forecast.words import NOT_COUNTED
from rmqinspect.page.words import amount, grouped, list_some, moment, short, sized
from rmqinspect.system.uri import is_remote
from rmqinspect.verify.codes import BY_CODE, GAPS
from rmqinspect.verify.next_start import found_lost

_NAMED = 8  # topics or groups in a sentence
_LISTED = 5  # sentences of one kind
_CHOICES = 3  # other ways to start

# What consumers do not get after the start, though it stays in the log: field of a start, verb, the rest.
_NOT_RECEIVED = (
    ("unreachable_messages", "leaves", "where no consumer gets them"),
    ("wrong_messages", "returns something else for", ""),
    ("jumped_messages", "jumps over", "behind damage"),
    ("skipped_messages", "makes groups skip up to", "that are still to come"),
    ("undelivered_messages", "never delivers up to", "that are delayed"),
)

# Codes of damage in what a broker can build again from the log.
_DERIVED = ("CQ-", "IX-", "BQ-", "EX-")


class Step(NamedTuple):
    """What to do, and the command for it."""

    text: str
    command: str | None = None


class Answer(NamedTuple):
    """A question of the reader, and what is known."""

    question: str
    sentences: Sequence[str]


class Story(NamedTuple):
    """What stands first about a store."""

    tone: str  # good, warn or bad
    store: str  # a sentence about what is there
    start: str  # a sentence about the next start
    answers: Sequence[Answer]
    steps: Sequence[Step]


def tell(documents: Mapping[str, Any], zone: tzinfo) -> Story:
    """Return the story of a store."""
    return _Teller(documents, zone).story()


class _Teller:
    def __init__(self, documents: Mapping[str, Any], zone: tzinfo) -> None:
        self.report: Mapping[str, Any] = documents["report"]
        self.start: Mapping[str, Any] = documents.get("forecast") or documents.get("start") or {}
        self.verdict: str | None = self.start.get("verdict")
        told = documents.get("forecast") or self.report["next_start"] or {}
        self.first: Mapping[str, str] | None = told.get("do_first")
        self.zone = zone
        self.what = "This store" if self.report["given"] is None else "What was given of a store"
        self.stores = self.report["run"].get("words") or [self.report["run"]["store"]]
        self.damage = self.report["errors"] - self.report["counts"].get("ST-IO", 0)
        self.errors = [row for row in self.report["findings"] if row["severity"] == "error" and row["code"] != "ST-IO"]

    def story(self) -> Story:
        """Return all of it."""
        questions = (
            ("What is lost?", list(self._lost()) or ["Nothing that is known of."]),
            ("Whose messages?", list(self._whose())),
            ("Since when?", list(self._when())),
            ("Why?", list(self._why())),
        )
        answers = [Answer(question, sentences) for question, sentences in questions if sentences]
        return Story(self._tone(), self._store(), self._next_start(), answers, list(self._steps()))

    def _tone(self) -> str:
        if self.damage or self.verdict in (Verdict.LOSES, Verdict.EMPTY, Verdict.REFUSES):
            return "bad"
        sure = self.report["complete"] and not self.report["warnings"] and self.verdict in (None, Verdict.SAFE)
        return "good" if sure else "warn"

    # --- two sentences ------------------------------------------------------------------------------

    def _store(self) -> str:
        report = self.report
        if self.damage:
            rest = "" if report["complete"] else " Not all of it could be read, so there may be more."
            return f"{self.what} is damaged: {amount(self.damage, 'error')}.{rest}"
        if not report["complete"]:
            return "Not all could be read. What was read shows no damage."
        if report["warnings"]:
            warnings = amount(report["warnings"], "warning")
            return f"Nothing that is here is damaged, but something is suspicious: {warnings}."
        return f"{self.what} is whole: all checks that were made passed."

    def _next_start(self) -> str:
        start, verdict = self.start, self.verdict
        if verdict == Verdict.SAFE:
            more = " more" if self.damage or start["already_lost"] else ""
            return f"A broker that is started now loses nothing{more}."
        if verdict == Verdict.LOSES:
            return f"A broker that is started now {self._cost()}."
        if verdict == Verdict.EMPTY:
            return "A broker that is started now begins empty, although there is proof of more."
        if verdict == Verdict.REFUSES:
            return f"A broker does not start on this store: {start['refusal']['file']} is in its way."
        if verdict == Verdict.RUNS:
            return "A broker runs on this store now."
        if verdict is not None:
            return f"What a broker does with this store at its next start cannot be told: {start.get('cannot_tell')}."
        if start:
            return f"A broker starts on this store: {NOT_COUNTED}."
        return "What the next start of a broker does was not looked at: that takes a whole store, read to its end."

    def _cost(self) -> str:
        lost = self.start.get("lost_messages")
        parts = [
            f"{verb} {amount(number, 'message')} {rest}".rstrip()
            for field, verb, rest in _NOT_RECEIVED
            if (number := self.start.get(field))
        ]
        if lost:
            topics = len(self.start["lost_by_topic"])
            of = f" of {amount(topics, 'topic')}" if topics else ""
            parts.insert(0, f"loses {amount(lost, 'message')}{of} for good")
        elif lost is None and not parts:
            parts.append("loses messages, which were not counted")
        *others, last = parts or ["loses what is listed below"]
        return f"{', '.join(others)} and {last}" if others else last

    # --- answers ------------------------------------------------------------------------------------

    def _lost(self) -> Iterator[str]:
        start, report = self.start, self.report
        if lost := start.get("lost_messages"):
            size = start.get("lost_bytes")
            whole = start.get("lost_intact")
            words = f"By the next start: {amount(lost, 'message')}" + (f", {sized(size)}" if size else "")
            yield f"{words}. Until then they lie in the log" + (
                f", {amount(whole, 'of them intact', 'of them intact')}." if whole is not None else "."
            )
        for field, label in (
            ("unreachable_messages", "Out of reach by the next start"),
            ("wrong_messages", "Returned as something else after the next start"),
            ("jumped_messages", "Jumped over after the next start, behind damage"),
        ):
            if number := start.get(field):
                yield f"{label}: {amount(number, 'message')}. They stay in the log."
        if behind := start.get("acknowledged"):
            yield f"Already lost, and no start brings it back: {behind['words']}."
        if nowhere := start.get("in_no_queue"):
            yield (
                f"In no queue: {amount(sum(nowhere.values()), 'record')} of topics that topics.json does not have "
                f"({_ranked(nowhere)}): deleted, or lost with the metadata."
            )
        # What a start deletes that loses nothing holds nothing, or is built again.
        deleted = len(start.get("deleted_files") or ())
        if deleted and self.verdict != Verdict.SAFE:
            yield f"The next start deletes {amount(deleted, 'file')}."
        gone = [*(start.get("already_lost") or ()), *found_lost(report["counts"])]
        for text in gone[:_LISTED]:
            yield f"Already lost: {text}."
        if report["loss"] is not None:
            yield f"Already lost: {report['loss']['summary']}."
        gaps = [row for row in self.errors if row["code"] in GAPS]
        for row in gaps[:_LISTED]:
            yield f"{row['file'] or 'The log'}: {row['message']} ({row['code']})."
        if len(gaps) > _LISTED:
            yield f"And {amount(len(gaps) - _LISTED, 'more damaged place')}, listed below."

    def _whose(self) -> Iterator[str]:
        for field, label in (
            ("lost_by_topic", "Of the topics"),
            ("unreachable_by_topic", "Out of reach, of the topics"),
            ("wrong_by_topic", "Returned as something else, of the topics"),
            ("jumped_by_topic", "Jumped over, of the topics"),
        ):
            if topics := self.start.get(field):
                yield f"{label} {_ranked(topics)}."
        if self.report["loss"] is not None and (messages := self.report["loss"]["messages"]):
            yield f"Already lost, of the topics {_ranked(messages)}."
        groups = {one["group"]: one["unconsumed"] for one in self.start.get("groups") or () if one["unconsumed"]}
        if groups:
            yield f"Consumer groups that had not consumed them: {_ranked(groups)}."
        skips = {one["group"]: one["skips"] for one in self.start.get("groups") or () if one["skips"]}
        if skips:
            yield f"After that start these groups skip new messages, at most so many: {_ranked(skips)}."
        again = {one["group"]: one["again"] for one in self.start.get("groups") or () if one["again"]}
        if again:
            yield f"These groups get messages a second time, at most so many: {_ranked(again)}."

    def _when(self) -> Iterator[str]:
        first, last = (self.start.get(f"{which}_lost_timestamp") for which in ("first", "last"))
        if first is not None and last is not None:
            words = (
                f"at {self._moment(first)}" if first == last else f"from {self._moment(first)} to {self._moment(last)}"
            )
            yield f"The messages that the next start loses were stored {words}."
        newest = (self.report["loss"] or {}).get("newest_store_timestamp")
        if newest is not None:
            yield f"The newest message that anything refers to was stored at {self._moment(newest)}."
        stored = sorted(row["store_timestamp"] for row in self.errors if row["store_timestamp"] is not None)
        if stored:
            yield f"The first damaged message was stored at {self._moment(stored[0])}."
        ends = [one["last_store_timestamp"] for one in self.report["segments"] if one["last_store_timestamp"]]
        if ends and (self.errors or first is not None):
            yield f"The last message of the log was stored at {self._moment(ends[-1])}."

    def _why(self) -> Iterator[str]:
        if (refusal := self.start.get("refusal")) is not None:
            named = refusal["file"] in refusal["why"]
            yield f"{refusal['why'] if named else refusal['file'] + ': ' + refusal['why']}."
        lines = (self.report["next_start"] or {}).get("lines") or ()
        if self.verdict == Verdict.LOSES:
            # Where the releases differ, the first line says so, and each has one.
            worst = [line for line in lines[1:] if line.startswith(str(self.verdict))]
            yield from (f"{_capital(line)}." for line in worst or lines[1:2])
        if self.verdict == Verdict.EMPTY and self.start.get("proofs"):
            yield f"More was there: {', '.join(self.start['proofs'])} prove it."
        kinds: dict[str, Mapping[str, Any]] = {}
        for row in self.errors:
            kinds.setdefault(row["code"], row)
        for code, row in list(kinds.items())[:_LISTED]:
            known = BY_CODE.get(code)
            if code not in GAPS:
                yield f"{row['file'] or 'The log'}: {row['message']} ({code})."
            elif known is not None:
                yield f"How {code} comes about: {known.cause}."
        if len(kinds) > _LISTED:
            yield f"And {amount(len(kinds) - _LISTED, 'more kind')} of errors, listed below."

    def _moment(self, text: str) -> str:
        return moment(text, self.zone)

    # --- steps --------------------------------------------------------------------------------------

    def _steps(self) -> Iterator[Step]:
        verdict = self.verdict
        if verdict == Verdict.RUNS:
            yield Step("Do not start a second broker on this store: it would cut the log before it notices the first.")
            yield Step("Stop the broker in order, or copy the store, and look again.", self._fill(VERIFY))
        elif verdict in (Verdict.LOSES, Verdict.EMPTY, Verdict.REFUSES):
            yield from self._before_a_start()
        elif verdict == Verdict.UNKNOWN:
            yield Step("Do not start the broker before this is known.", self._fill(FORECAST))
        else:
            yield from self._if_safe()
        if not self.report["complete"]:
            yield Step("Make all of the store readable and look again: what could not be read is listed below.")

    def _before_a_start(self) -> Iterator[Step]:
        start = self.start
        yield Step("Do not start the broker yet, and stop whatever starts it by itself.")
        root = self.report["run"]["store"]
        if not is_remote(root):
            yield Step("Copy the store first.", fill_command("cp -a --sparse=always {store} COPY", [root]))
        if save := start.get("save"):
            yield Step("Save the messages that the start would lose.", save)
        elif start.get("lost_messages"):
            yield Step("Save the messages that the start would lose.", self._fill(SAVE))
        if self.verdict == Verdict.EMPTY:
            yield Step("Find what is missing, or a copy of it: in another folder, a backup, the store of a replica.")
        if (refusal := start.get("refusal")) is not None:
            yield Step(f"What makes it start: {refusal['remedy']}.", self._fill(FORECAST))
        better = [way for way in start.get("instead") or () if way["better"]]
        yield from self._first(better)
        if len(better) > 1:
            others = "; ".join(f"{way['way']} ({way['loses']})" for way in better[1 : _CHOICES + 1])
            yield Step(f"Other choices that cost less than this start: {others}.")
        if not start.get("instead"):
            yield Step("See whether another choice of a start loses less.", self._fill(FORECAST))
            yield from self._new_store("Or make")

    def _first(self, better: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
        """Yield the first step by price, where it is another choice than this start."""
        if self.first is not None and better:
            yield Step(f"{_capital(self.first['text'])}.", self._fill(COMMANDS.get(self.first["action"], FORECAST)))

    def _if_safe(self) -> Iterator[Step]:
        if self.verdict == Verdict.SAFE:
            more = " What is damaged stays as it is." if self.damage else ""
            if self.first is not None and self.first["action"] == Action.LOOK:
                yield Step(f"{_capital(self.first['text'])}.")
            else:
                yield Step(f"The broker may be started.{more}")
        if self.damage:
            yield from self._new_store("Make")
        elif self.report["warnings"]:
            yield Step("Read the warnings below.")

    def _new_store(self, verb: str) -> Iterator[Step]:
        codes = {row["code"] for row in self.errors}
        if any(code.startswith("CL-") for code in codes):
            yield Step(
                f"{verb} a new store of all that can be saved. This says what that would be, and writes nothing.",
                self._fill(f"{SALVAGE} --dry-run"),
            )
        elif codes and all(code.startswith(_DERIVED) for code in codes):
            yield Step(
                f"{verb} a new store: the log is sound, so its queues and its index can be built again.",
                self._fill(REBUILD_STORE),
            )

    def _fill(self, template: str) -> str:
        return fill_command(template, self.stores)


def _ranked(numbers: Mapping[str, int]) -> str:
    """Return names with their numbers, the largest first."""
    order = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return list_some([f"{short(name)} ({grouped(number)})" for name, number in order], _NAMED)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
