"""Why the bytes at a place are damaged: the same answer that `verify` gives about them."""

from collections.abc import Sequence

from rmqinspect.codec.fields import FieldRow
from rmqinspect.commitlog.locate import Spot
from rmqinspect.store.model import Store


def explain_spot(store: Store, spot: Spot, rows: Sequence[FieldRow]) -> str | None:
    """Return a clause on why what lies at a spot does not prove itself; None where it does, or nothing tells.

    `rows` describe the spot: without a problem among them nothing is read.
    """
    if spot.kind not in ("record", "unknown") or not any(row.problem for row in rows):
        return None
    from rmqinspect.damage.diagnose import explain_damage  # imports numpy, which sound records do without

    return explain_damage(store, spot.segment, spot.start if spot.entry is None else spot.entry)
