"""Where kernels find the fields of queue units.

A batch unit begins with the fields of a queue unit. Source: ConsumeQueue, BatchConsumeQueue.
"""

from rmqinspect.codec.kernels import inlined
from rmqinspect.codec.layout import place_of
from rmqinspect.schemas.consumequeue import PRE_BLANK_SIZE, BatchUnit, QueueUnit

UNIT_SIZE: int = QueueUnit.sizeof()

PLACE = place_of(BatchUnit, "physical_offset")
SIZE = place_of(BatchUnit, "size")
TAGS = place_of(BatchUnit, "tags_code")
STORED = place_of(BatchUnit, "store_timestamp")
OFFSET = place_of(BatchUnit, "queue_offset")
MESSAGES = place_of(BatchUnit, "message_count")


@inlined
def is_filler(place: int, size: int, tags: int) -> bool:
    """Return whether a unit is pre-blank filler. Source: ConsumeQueue#fillPreBlank."""
    return size == PRE_BLANK_SIZE and place == 0 and tags == 0
