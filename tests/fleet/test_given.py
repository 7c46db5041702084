"""Which words of a command line are one store together, and what each store is called."""

from pathlib import Path

import pytest

from rmqinspect.errors import BadOption
from rmqinspect.fleet.given import Given, listed_stores, stores_of
from tests.support.samples import sample

STORE, OTHER = str(sample("killed-4.9.7")), str(sample("healthy-5.5.0"))


def test_one_word_is_one_store_and_keeps_the_name_it_has() -> None:
    assert stores_of([STORE]) == [Given((STORE,))]
    assert stores_of([]) == [Given(())]  # of a broker.conf
    assert stores_of(["missing"]) == [Given(("missing",))]


def test_a_named_store_is_named_in_commands() -> None:
    (one,) = stores_of([f"a={STORE}"])
    assert one == Given((STORE,), "a", is_named=True)
    assert one.words == (f"a={STORE}",)
    assert one.open().name == "a"


def test_loose_files_and_folders_join_the_only_root() -> None:
    words = [STORE, f"{OTHER}/commitlog"]
    assert stores_of(words) == [Given(tuple(words))]
    loose = [f"{STORE}/commitlog", f"{STORE}/config"]
    assert stores_of(loose) == [Given(tuple(loose))]
    named, together = stores_of([f"a={STORE}", *loose])
    assert (named.name, together.paths) == ("a", tuple(loose))


def test_stores_of_one_name_are_told_apart_by_their_folders() -> None:
    assert [one.name for one in stores_of([STORE, OTHER])] == ["killed-4.9.7/store", "healthy-5.5.0/store"]
    assert [one.name for one in stores_of(["/m/a/x/store", "/m/b/x/store", "/m/c"])] == ["a/x/store", "b/x/store", "c"]
    assert [one.name for one in stores_of([f"store={STORE}", OTHER])] == ["store", "healthy-5.5.0/store"]
    assert [one.name for one in stores_of(["s3://one/store", "s3://two/store/"])] == ["one/store", "two/store"]


@pytest.mark.parametrize("words", [["a=x", "a=y"], ["/m/store", "/m/store"], ["/m/store", "/m/store/"]])
def test_two_stores_of_one_name_are_refused(words: list[str]) -> None:
    with pytest.raises(BadOption, match=r"two stores are called .*: no answer could say which is meant"):
        stores_of(words)


def test_what_is_no_store_is_one_that_fails(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = [STORE, str(tmp_path / "empty"), str(tmp_path / "missing")]
    assert [one.name for one in stores_of(words)] == ["store", "empty", "missing"]


# --- lists ----------------------------------------------------------------------------------------


def test_a_list_has_a_store_a_line() -> None:
    content = b"# after the power cut\n\n  /mnt/a/store \r\nb=s3://bucket/b\n/mnt/caf\xe9#1\n \n#/mnt/c\n/mnt/d e"
    assert listed_stores(content) == ["/mnt/a/store", "b=s3://bucket/b", "/mnt/caf\udce9#1", "/mnt/d e"]


@pytest.mark.parametrize(("content", "why"), [(b"", "no store"), (b"# none\n\n", "no store"), (b"a\0b", "byte 0")])
def test_what_is_no_list_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        listed_stores(content)
