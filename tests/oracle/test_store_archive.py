"""The oracle data is all there, reads as it was recorded, and stays as it is."""

from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.samples import SAMPLES, sample

SAMPLE_CASES: dict[str, tuple[oracle.Family, str]] = {
    "healthy-4.9.7": ("crash", "base-4.9.7-clean"),
    "healthy-5.5.0": ("crash", "base-5.5.0-clean"),
    "killed-4.9.7": ("broker", "halt-4.9.7"),
    "flipped-bit-5.3.3": ("crash", "flip_body_third-5.3.3-h"),
    "zeroed-page-4.7.1": ("crash", "zero_page_last-4.7.1-h"),
}


def test_there_are_242_cases() -> None:
    assert len(oracle.cases("crash")) == 215
    assert len(oracle.cases("broker")) == 26
    assert len(oracle.cases("rust")) == 1


@pytest.mark.parametrize("family", ["crash", "broker", "rust"])
def test_every_case_has_a_store_and_a_truth_and_every_store_a_case(family: oracle.Family) -> None:
    names = oracle.cases(family)
    assert len(set(names)) == len(names)
    stores = {path.name for path in oracle.store(family, names[0]).parents[1].iterdir()}
    assert stores == set(names)
    for name in names:
        assert any(path.is_file() for path in oracle.store(family, name).rglob("*")), name
        assert oracle.truth(family, name), name
        assert bool(oracle.case(family, name)) == (family == "crash"), name


def test_an_unknown_case_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        oracle.store("crash", "base-3.0.0-clean")
    with pytest.raises(KeyError):
        oracle.truth("crash", "base-3.0.0-clean")


def test_files_have_the_sizes_the_broker_saw() -> None:
    for name in oracle.cases("crash"):
        root = oracle.store("crash", name)
        for file, size in oracle.truth("crash", name)["files_before"]:
            path = root / file
            assert path.is_dir() if file.endswith("/") else path.stat().st_size == size, f"{name}: {file}"


def test_holes_come_out_as_zeros_of_the_right_length() -> None:
    wheel = oracle.store("broker", "main-5.3.3") / "timerwheel"
    assert wheel.stat().st_size == 2 * 7 * 24 * 3600 * 32  # slots of 32 bytes, one a second, twice seven days
    assert wheel.read_bytes().count(0) > 38_000_000


def test_column_tables_become_rows() -> None:
    log = oracle.truth("broker", "halt-4.9.7")["log"]
    records = [row for row in log if not row.get("blank")]
    assert len(records) == 309
    assert records[0]["physical_offset"] == 0
    assert None not in records[0].values()


def test_undamaged_stores_are_the_ones_that_say_so() -> None:
    assert not oracle.is_damaged("base-5.3.3-clean")
    assert not oracle.is_damaged("none-5.2.0-p")
    assert oracle.is_damaged("flip_body_third-5.3.3-h")


def test_every_put_of_an_undamaged_store_was_acknowledged_with_its_place() -> None:
    puts = oracle.puts("base-4.9.7-clean")
    assert len(puts) == 210
    assert puts[0]["phys"] == 0


def test_a_copy_is_equal_and_changing_it_is_seen(tmp_path: Path) -> None:
    place = oracle.copy("broker", "retention-4.9.7", tmp_path)
    before = oracle.snapshot(place)
    assert before == oracle.snapshot(oracle.store("broker", "retention-4.9.7"))
    (place / "checkpoint").write_bytes(b"")
    (place / "config" / "left-behind").touch()
    changed = oracle.differences(before, oracle.snapshot(place))
    assert changed == ["checkpoint", "config/", "config/left-behind"]


@pytest.mark.parametrize("name", SAMPLE_CASES)
def test_a_sample_is_a_store_of_the_oracle_byte_for_byte(name: str) -> None:
    # Not the times: a checkout makes its own.
    ours = oracle.snapshot(sample(name))
    real = oracle.snapshot(oracle.store(*SAMPLE_CASES[name]))
    assert {name: found.sha256 for name, found in ours.items()} == {name: found.sha256 for name, found in real.items()}


def test_every_sample_has_a_page_and_is_listed() -> None:
    folders = {path.name for path in SAMPLES.iterdir() if path.is_dir()}
    assert folders == set(SAMPLE_CASES)
    overview = (SAMPLES / "README.md").read_text()
    for folder in folders:
        assert f"({folder})" in overview
        assert f"rmqinspect decode samples/{folder}/store" in (SAMPLES / folder / "README.md").read_text()
