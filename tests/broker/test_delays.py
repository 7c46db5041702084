"""What became of a delayed message: each rule, and the order of rules."""

import numpy as np
import pytest

from rmqinspect.broker.delays import NO_REASON, REASONS, STATES, DeleteKeys, Facts, delete_keys, judge, level_delay
from rmqinspect.broker.version_estimate import RELEASES


def judged(*true: str) -> tuple[str, str | None]:
    """Return state and reason of a message of which these facts are true."""
    facts = Facts(*(np.array([name in true]) for name in Facts._fields))
    (state,), (reason,) = judge(facts)
    return STATES[state], None if reason == NO_REASON else REASONS[reason]


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (("waits", "readable"), "pending"),
        (("waits", "readable", "due"), "overdue"),
        (("waits", "readable", "due", "copy_lost"), "overdue"),
        # Offsets are written later than copies: a broker that was killed has delivered more than they say.
        (("waits", "readable", "due", "delivered"), "delivered"),
        (("readable", "due", "delivered", "copy_lost"), "delivered"),
        (("readable", "rolled", "delivered"), "rolled"),
        (("waits", "readable", "cancelled"), "cancelled"),
        (("readable", "due", "cancelled", "delivered"), "delivered"),
        (("waits", "readable", "deletes", "delivered"), "delete_mark"),
        (("waits", "due"), "lost"),
        (("waits",), "lost"),
        (("readable", "due"), "lost"),
        (("readable", "due", "copy_lost"), "unknown"),
        (("readable", "unreached", "copy_lost"), "lost"),
    ],
)
def test_the_first_rule_that_applies_decides(facts: tuple[str, ...], state: str) -> None:
    found, reason = judged(*facts)
    assert found == state
    assert (reason is not None) == (state in ("lost", "unknown"))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("5.0.0", "5.3.1", DeleteKeys(plain=True, with_topic=False)),
        ("5.3.2", "5.3.3", DeleteKeys(plain=False, with_topic=True)),
        ("5.4.0", "5.5.0", DeleteKeys(plain=True, with_topic=False)),
        ("5.3.0", "5.3.2", DeleteKeys(plain=True, with_topic=True)),
    ],
)
def test_releases_obey_one_form_of_an_order_to_delete(low: str, high: str, expected: DeleteKeys) -> None:
    releases = RELEASES[RELEASES.index(low) : RELEASES.index(high) + 1]
    assert delete_keys(releases, {}) == expected


def test_a_setting_decides_which_form_is_obeyed() -> None:
    name = "appendTopicForTimerDeleteKey"
    assert delete_keys(["5.4.0"], {name: "true"}) == DeleteKeys(plain=False, with_topic=True)
    assert delete_keys(["5.3.3"], {name: "false"}) == DeleteKeys(plain=True, with_topic=False)


def test_levels_have_the_delays_of_the_setting() -> None:
    assert [level_delay(level, {}) for level in (1, 2, 5, 17, 18)] == [1000, 5000, 60_000, 3_600_000, 7_200_000]
    assert level_delay(2, {"messageDelayLevel": "1s 2d"}) == 2 * 86_400_000
    assert level_delay(3, {"messageDelayLevel": "1s 2d"}) == 1000  # as ScheduleMessageService#computeDeliverTimestamp
    assert level_delay(2, {"messageDelayLevel": "1s 2x"}) == 5000
