"""The parts of a gap: every run of zeros is found, wherever the borders of the chunks that are read lie."""

import re
import tempfile
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from rmqinspect.commitlog import find_record as lenient_reader
from rmqinspect.commitlog.find_record import LenientReader
from rmqinspect.commitlog.gaps import ZERO_RUN, Gap, describe_gap
from rmqinspect.store.reader import open_file
from tests.support.building import write_segment

BASE = 1 << 20
CHUNK = 700  # of a read, more than a run

_sizes = st.one_of(st.integers(1, 3), st.integers(ZERO_RUN - 2, ZERO_RUN + 2), st.integers(1, 3 * CHUNK))


def expected(raw: bytes) -> list[Gap]:
    """Return the parts by a search through the whole gap at once."""
    ends = {0: 1, len(raw): 1}
    runs = [match.span() for match in re.finditer(b"\0+", raw)]
    long = [(a, b) for a, b in runs if b - a >= ZERO_RUN or a in ends or b in ends]
    borders = [0, *(place for run in long for place in run), len(raw)]
    parts = [("zeros" if number % 2 else "unknown", *span) for number, span in enumerate(pairwise(borders))]
    return [Gap(BASE + a, BASE + b, kind, None if kind == "zeros" else "magic") for kind, a, b in parts if a < b]


@given(sizes=st.lists(_sizes, min_size=1, max_size=9), zeros_first=st.booleans())
@example(sizes=[CHUNK, ZERO_RUN - 1, CHUNK], zeros_first=True)  # a run that is short, and ends with a chunk
@example(sizes=[CHUNK - 1, 1], zeros_first=False)
@example(sizes=[4 * CHUNK], zeros_first=True)
def test_the_runs_of_zeros_do_not_depend_on_the_reads(sizes: list[int], zeros_first: bool) -> None:
    raw = b"".join(b"\0x"[number % 2 ^ (not zeros_first)].to_bytes() * size for number, size in enumerate(sizes))
    small = patch.object(LenientReader.chunks, "__defaults__", (0, CHUNK))
    with tempfile.TemporaryDirectory() as folder, patch.object(lenient_reader, "_CHUNK", CHUNK), small:
        segment = write_segment(Path(folder), raw, BASE)
        with open_file(segment) as file:
            found = list(describe_gap(LenientReader(file, segment), 0, len(raw), "magic"))
    assert found == expected(raw)
