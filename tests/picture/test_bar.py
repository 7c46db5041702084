"""The log in one row: never wider than asked for, damage always seen, nothing hidden by the mark."""

import re

import pytest

from rmqinspect.commitlog.log_runs import Run, painted
from rmqinspect.picture.bar import GLYPHS, bar
from rmqinspect.picture.model import Picture, Strip
from rmqinspect.text import cell_width

SEGMENT = 1 << 30
WIDTHS = range(40, 201)


def picture(
    segments: int,
    written: int,
    damage: tuple[int, ...] = (),
    cut: int | None = None,
    size: int = SEGMENT,
    base: int = 0,
) -> Picture:
    """Return the picture of a log that was written up to a place, with damage of one byte each."""
    end = base + segments * size
    strips = [
        Strip(f"commitlog/{base + at * size:020}", base + at * size, base + (at + 1) * size) for at in range(segments)
    ]
    layers = [[Run(base, end, "zeros")], [Run(base, written, "records")], [Run(at, at + 1, "damage") for at in damage]]
    return Picture("S", base, end, strips, painted(layers, base, end), gives_up_from=cut, log_end=written)


def test_the_row_of_the_page() -> None:
    one = picture(5, 217698, (97187,), 97187, size=65536)
    assert bar(one, 60) == "0 █████████████████│ends here│✗░░░░░░░░░░░░░░░░░░░░░ 217 698"
    assert bar(one, 60, ascii_only=True) == "0 #################|ends here|X::::::::::::::::::::: 217 698"
    assert bar(picture(1, 0), 40) == f"0 {'·' * 24} 1 073 741 824"


@pytest.mark.parametrize("segments", [1, 1000])
@pytest.mark.parametrize("base", [0, 7 * SEGMENT])
def test_a_row_fits_and_a_damaged_byte_is_seen_at_every_width(segments: int, base: int) -> None:
    end = base + segments * SEGMENT
    written = end - SEGMENT // 2
    for at in (base, base + 1, (base + written) // 2, written - 1):
        for cut in (None, base, at, written - 2):
            one = picture(segments, written, (at,), cut, base=base)
            for width in WIDTHS:
                row = bar(one, width)
                assert cell_width(row) <= width
                assert len(row) > width - 3
                assert row.count("✗") == 1, (at, cut, width, row)
                assert ("│" in row) == (cut is not None)


def test_the_mark_stands_where_the_cut_is() -> None:
    for cut in range(0, 1000, 37):
        row = bar(picture(1, 1000, (), cut, size=1000), 111)
        before, after = re.fullmatch(r"0 (█*)│ends here│(░*) 1 000", row).groups()  # type: ignore[union-attr]
        assert abs(len(before) / (len(before) + len(after)) - cut / 1000) < 0.02


def test_a_tiny_log_fills_the_row_too() -> None:
    one = picture(1, 3, (1,), size=4)
    assert re.fullmatch(r"0 █+✗+█+ 3", bar(one, 40))


def test_a_store_without_a_log_has_no_row() -> None:
    assert bar(Picture("S"), 80) == ""


def test_every_kind_has_a_cell_of_one_column_in_ascii_too() -> None:
    assert all(len(pair) == 2 and cell_width(pair) == 2 and pair[1].isascii() for pair in GLYPHS.values())


def test_colours_change_nothing_but_colours() -> None:
    one = picture(3, 2 * SEGMENT, (5, SEGMENT), SEGMENT)
    styled = bar(one, 80, style=lambda text, kind: f"<{kind}>{text}</>")
    assert re.sub(r"<[a-z_/]*>", "", styled) == bar(one, 80)
    assert "<mark>│ends here│</>" in styled
    assert styled.count("<damage>") == 2
