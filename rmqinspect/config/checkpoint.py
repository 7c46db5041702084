"""The values of the checkpoint file."""

import numpy as np

from rmqinspect.codec.layout import dtype_of
from rmqinspect.schemas.checkpoint import Checkpoint
from rmqinspect.store.model import Store
from rmqinspect.store.reader import open_file


def read_checkpoint(store: Store, *, mapped: bool = False) -> dict[str, int]:
    """Return the stored values by field, in file order; empty without a checkpoint file.

    A truncated file yields its complete fields; `mapped` gives all of them as a broker reads them, which first extends
    the file with zeros. Fields newer than the broker's version are 0.

    :raises Unreadable: the file cannot be read.
    """
    if store.checkpoint is None:
        return {}
    layout = dtype_of(Checkpoint)
    with open_file(store.checkpoint) as reader:
        raw = reader.read(0, layout.itemsize)
    values = np.frombuffer(raw.ljust(layout.itemsize, b"\0"), layout)[0]
    names = layout.names or ()
    whole = len(names) if mapped else len(raw) // (layout.itemsize // len(names))  # all fields are of one size
    return {name: int(values[name]) for name in names[:whole]}
