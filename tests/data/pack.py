"""Pack a folder of oracle cases into the archives beside this file, two for each family.

    python tests/data/pack.py FOLDER

FOLDER holds `crash/<case>/`, `broker/<case>/` and `rust/<case>/`. A case is `store.tar.xz` (top folder `store/`) and
`truth.json`, for crash cases also `case.json` and, where the writer's own list was kept, `puts.jsonl`; the
three may end in `.gz`.

Many stores are one store with another damage, so one solid archive per family is a fifth of the archives
apart; the dictionary is as large as the whole of it. Needs GNU tar: Python's tarfile reads sparse members but
writes none, and a timer wheel of 38 MB is nearly all hole.

The same input gives the same bytes: members are sorted, owners are 0, times are those of the files.
"""

import gzip
import io
import json
import lzma
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
FAMILIES = ("crash", "broker", "rust")
TRUTH_FILES = ("case.json", "truth.json", "puts.jsonl")

# Larger than either family unpacked without holes, and what a reader has to hold in memory at most.
DICTIONARY = 128 << 20


def case_names(family: Path) -> list[str]:
    """Return the names of the folders that hold a store, sorted."""
    return sorted(store.parent.name for store in family.glob("*/store.tar.xz"))


def read_maybe_gzip(path: Path) -> bytes | None:
    """Return the bytes of `path`, or of `path` + '.gz' unpacked, or None where neither exists."""
    if path.exists():
        return path.read_bytes()
    packed = path.with_name(path.name + ".gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else None


def write_xz(target: Path, blocks: Iterable[bytes]) -> None:
    """Write `blocks` to `target` as one xz stream with the dictionary above."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": DICTIONARY}]
    with lzma.open(target, "wb", filters=filters) as out:
        for block in blocks:
            out.write(block)
    print(f"{target.name}: {target.stat().st_size:,} bytes")


def pack_stores(family: Path, names: list[str], target: Path) -> None:
    """Write every store of the family as `<case>/store/...`."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            place = Path(scratch, name)
            place.mkdir()
            subprocess.run(["tar", "-xJf", str(family / name / "store.tar.xz"), "-C", str(place)], check=True)
        options = ["--format=gnu", "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
        # The stores by name, not the folders of the cases: those are made here and bring the time of packing.
        stores = [f"{name}/store" for name in names]
        command = ["tar", *options, "-C", scratch, "-cf", "-", *stores]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
            assert tar.stdout is not None
            write_xz(target, iter(partial(tar.stdout.read, 1 << 20), b""))
        if tar.returncode:
            raise SystemExit(f"tar ended with {tar.returncode}")


def pack_truths(family: Path, names: list[str], target: Path) -> None:
    """Write `<case>/case.json`, `<case>/truth.json` and `<case>/puts.jsonl`; kind by kind packs best."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for file in TRUTH_FILES:
            for name in names:
                content = read_maybe_gzip(family / name / file)
                if content is not None:
                    member = tarfile.TarInfo(f"{name}/{file}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    write_xz(target, [plain.getvalue()])


def main(source: Path) -> None:
    """Pack the families of `source`, and list their cases."""
    names = {family: case_names(source / family) for family in FAMILIES}
    for family in FAMILIES:
        pack_stores(source / family, names[family], HERE / f"{family}-stores.tar.xz")
        pack_truths(source / family, names[family], HERE / f"{family}-truths.tar.xz")
    (HERE / "cases.json").write_text(json.dumps(names, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
