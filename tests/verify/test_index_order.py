"""IX-ORDER, IX-DUPLICATE and IX-FIRST: index files under other names, twice, and without the first one."""

from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import pytest

from rmqinspect.store.discover import open_store
from rmqinspect.verify.findings import Finding, what_to_do
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.run import verify
from tests.support import oracle
from tests.support.building import various
from tests.support.whole_stores import WholeStore

_STORES: tuple[tuple[oracle.Family, str], ...] = (
    ("crash", "none-4.2.0-b"),
    ("crash", "none-5.5.0-h-messageIndexSafe"),
    ("broker", "main-4.7.1"),
    ("broker", "dledger-5.3.3"),
    ("broker", "retention-5.3.3"),
)


KEYED = [{**piece, "properties": {"KEYS": f"key{number}"}} for number, piece in enumerate(various(40))]


def of_index(root: Path, level: str = "standard") -> list[Finding]:
    """Return the findings about index files."""
    rows = verify(open_store([str(root)]), VerifyOptions(level=level, jobs=1)).findings.rows
    return [row for row in rows if row.code.startswith("IX-")]


def exchange(files: list[Path]) -> None:
    first, last, aside = files[0], files[-1], files[0].with_name("aside")
    first.rename(aside)
    last.rename(first)
    aside.rename(last)


def duplicate(files: list[Path]) -> None:
    copyfile(files[0], files[0].with_name(str(int(files[0].name) + 1)))


def remove_first(files: list[Path]) -> None:
    files[0].unlink()


@pytest.mark.parametrize(("source", "name", "expected"), [
    (0, "30000101000000000", {"IX-DUPLICATE": "warning", "IX-ORDER": "error"}),  # its old records end every search
    (-2, "30000101000000000", {"IX-DUPLICATE": "warning", "IX-ORDER": "error"}),
    (-1, "30000101000000000", {"IX-DUPLICATE": "warning"}),  # in order, as the last file is
    (-1, "19990101000000000", {"IX-DUPLICATE": "warning"}),  # no search that finds the last file comes to it
    (0, "19990101000000000", {"IX-DUPLICATE": "warning"}),
])  # fmt: skip
@pytest.mark.parametrize("level", ["quick", "standard"])
def test_of_two_equal_files_the_one_under_a_name_of_another_time_is_to_be_moved(
    source: int, name: str, expected: dict[str, str], level: str, tmp_path: Path
) -> None:
    """Source: IndexService#queryOffset goes from the last file back, to the first that begins before the time asked."""
    root = oracle.copy("broker", "main-5.3.3", tmp_path)
    files = sorted((root / "index").iterdir())
    assert len(files) > 2
    copy = copyfile(files[source], root / "index" / name)
    found = [row for row in of_index(root, level) if row.code != "IX-NONE"]
    assert {row.code: row.severity for row in found} == expected
    to_move = files[0] if (source, name) == (0, "19990101000000000") else copy
    assert {row.file for row in found} == {f"index/{to_move.name}"}
    assert {what_to_do(row) for row in found} == {f"stop the broker, and move index/{to_move.name} out of the store"}


@pytest.mark.parametrize(("family", "name"), _STORES)
@pytest.mark.parametrize(
    ("damage", "code", "severity"),
    [
        (exchange, "IX-ORDER", "error"),
        (duplicate, "IX-DUPLICATE", "warning"),
        (remove_first, "IX-FIRST", "warning"),
    ],
)
def test_what_was_done_to_index_files_is_found(
    family: oracle.Family,
    name: str,
    damage: Callable[[list[Path]], None],
    code: str,
    severity: str,
    tmp_path: Path,
) -> None:
    root = oracle.copy(family, name, tmp_path)
    damage(sorted((root / "index").iterdir()))
    levels = ("quick", "standard") if code != "IX-FIRST" else ("standard",)
    for level in levels:
        assert {(row.code, row.severity) for row in of_index(root, level)} - {("IX-NONE", "info")} == {(code, severity)}


def test_the_records_before_the_first_file_are_counted(tmp_path: Path) -> None:
    """Those that the writer of this store put before the first entry that is left, with a key or an id."""
    root = oracle.copy("crash", "base-4.9.7-clean", tmp_path)
    gone, begins, *_ = sorted((root / "index").iterdir())
    gone.unlink()
    begin = int.from_bytes(begins.read_bytes()[16:24])
    keyed = 0
    for put in oracle.puts("base-4.9.7-clean"):
        items = put.get("items") or [put]
        if put["phys"] < begin and put["kind"] != "rollback":
            keyed += sum(bool(item.get("keys") or item.get("uniq_key")) for item in items)
    [found] = of_index(root)
    assert (found.code, found.count, found.found) == ("IX-FIRST", keyed, f"the first one begins at {begin}")


def test_an_index_that_begins_with_a_segment_was_built_anew(tmp_path: Path) -> None:
    """As by a start after an unclean stop, which deletes the files and indexes the segments that it scans."""
    root = WholeStore(KEYED, indexed_from=1024).write(tmp_path)
    assert int.from_bytes(min((root / "index").iterdir()).read_bytes()[16:24]) >= 1024
    assert of_index(root) == []


def test_an_index_that_begins_amid_a_segment_lacks_its_first_file(tmp_path: Path) -> None:
    root = WholeStore(KEYED, indexed_from=1400).write(tmp_path)
    [found] = of_index(root)
    assert (found.code, found.severity) == ("IX-FIRST", "warning")
