"""The places of the records that a selection asks for."""

from rmqinspect.errors import NothingFound
from rmqinspect.find.plan import LookUp, plan_look_up
from rmqinspect.find.read import planned_rows
from rmqinspect.store.model import Store
from rmqinspect.tables.filters import Selection
from rmqinspect.tables.messages import SCHEMA
from rmqinspect.tables.table import Request


def find_records(store: Store, selection: Selection, most: int) -> tuple[list[int], LookUp]:
    """Return the physical offsets of up to `most` records, ascending, and how they were found.

    :raises NothingFound: there are none; the message says where was searched.
    :raises Unreadable: a file cannot be read.
    """
    look_up = plan_look_up(store, selection)
    if look_up is None:
        raise NothingFound(f"{store.name}: no commit log given, so there is no record")
    columns = selection.columns(SCHEMA) | {"physical_offset"}
    places: list[int] = []
    for batch in planned_rows(store, look_up.to_read, Request(records_of=(selection,), columns=columns)):
        places += selection.select_rows(batch).column("physical_offset").to_pylist()
        if len(places) >= most:
            break
    if not places:
        raise NothingFound(f"{store.name}: no such record; searched: {look_up.searched}")
    return places[:most], look_up
