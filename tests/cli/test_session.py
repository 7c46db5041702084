"""Commands that read stores go from one to the next in a Session: what it tells, and what it cleans up."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from rmqinspect.cli.session import Session
from rmqinspect.cli.verbs.decode import DecodeArguments, command
from rmqinspect.rocksdb.unpack import Unpacking
from rmqinspect.store.discover import open_store
from rmqinspect.store.model import Store
from tests.support.command import Run, runner
from tests.support.samples import sample

run = runner()


@pytest.mark.parametrize(
    "words",
    ["decode", "find -k nobody", "find --pull TopicA 0 0", "groups", "transactions", "delays", "usage", "usage -f csv"],
)
def test_what_was_inferred_is_told_with_the_name_of_the_store(words: str, run: Run) -> None:
    verb, *options = words.split()
    store = sample("healthy-5.5.0")
    told = f"{store.name}: segment size 65536: the length of the files\n"
    assert told in run(verb, str(store), *options, "-v")[2]
    assert told not in run(verb, str(store), *options)[2]


def test_copies_of_databases_go_when_a_session_ends_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[str] = []

    @contextmanager
    def unpacked(store: Store, how: Unpacking, only: Collection[str]) -> Iterator[Store]:
        here.append(store.name)
        try:
            yield store
        finally:
            here.remove(store.name)

    monkeypatch.setattr("rmqinspect.rocksdb.unpack.unpacked", unpacked)
    arguments = DecodeArguments(**command.make_context("decode", ["STORE"]).params)
    stores = [open_store([str(sample("healthy-5.5.0"))]) for _ in range(2)]
    with pytest.raises(ZeroDivisionError), Session(arguments, stores) as session:
        for store in session.stores(()):
            assert here == [store.name]
            raise ZeroDivisionError
    assert here == []
