"""The printer of labelled screens: columns line up, numbers and words stay whole, nothing is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqinspect.cli.terminal import WIDTH, Screen, columns, fold, pad
from rmqinspect.text import cell_width, clip

SCREEN = Screen(indent=13)
TEXTS = st.text(st.sampled_from("ab 1,;付款 ｶ é\u0301😀"), max_size=200)


@pytest.mark.parametrize(
    ("label", "text", "lines"),
    [
        ("queues", "", []),
        ("queues", "word " * 30, [f"queues       {' '.join(['word'] * 17)}", f"{'':13}{' '.join(['word'] * 13)}"]),
        ("a\x1b", "b\u202e", ["a\\x1b        b\\u202e"]),
        ("付款", "text", ["付款         text"]),  # two cells a character
        (
            "lost",
            "订单主题 " * 20,
            [f"{label:13}{' '.join(['订单主题'] * words)}" for label, words in (("lost", 9), ("", 9), ("", 2))],
        ),
        ("ST-CHECKPOINT-LONG", "word " * 18, ["ST-CHECKPOINT-LONG" + " word" * 16, f"{'':13}word word"]),
    ],
)
def test_a_row_is_a_label_and_folded_text(label: str, text: str, lines: list[str]) -> None:
    assert list(SCREEN.rows(label, text)) == lines
    assert all(cell_width(line) <= WIDTH for line in lines)


def test_a_line_stays_one_and_a_padded_text_counts_cells() -> None:
    assert SCREEN.line("next", "c\n") == "next         c\\n"
    assert pad("付款", 6) == "付款  "


def test_a_number_with_grouped_digits_stays_in_one_line() -> None:
    assert fold("at 97 187 and 1 002 187, end", 12) == ["at 97 187", "and", "1 002 187,", "end"]


def test_phrases_stay_together_where_that_leaves_no_short_line() -> None:
    assert fold("one two, three four five", 20, phrases=True) == ["one two, three four", "five"]
    assert fold("one two three, four five", 20, phrases=True) == ["one two three,", "four five"]


@pytest.mark.parametrize(("cut", "lines"), [(False, ["a", "bcdefghij", "k"]), (True, ["a", "bcdef", "ghij", "k"])])
def test_a_long_word_stays_whole_unless_it_may_be_cut(cut: bool, lines: list[str]) -> None:
    assert fold("a bcdefghij k", 5, cut=cut)[:2] == lines[:2]


@given(TEXTS, st.integers(4, 40), st.booleans(), st.booleans())
def test_folding_loses_spaces_only(text: str, width: int, phrases: bool, cut: bool) -> None:
    lines = fold(text, width, phrases=phrases, cut=cut)
    assert re.sub(" ", "", "".join(lines)) == re.sub(" ", "", text)
    if cut:
        assert max(map(cell_width, lines)) <= width


def test_columns_stand_side_by_side_by_cells() -> None:
    assert list(columns([("topic", "lag", "why"), ("付款", "10 240", "")], "<><")) == [
        "topic     lag  why",
        "付款   10 240",
    ]


def test_the_first_columns_give_way_where_a_line_is_too_wide() -> None:
    first, second = columns([("g" * 90, "t" * 40, "7"), ("g", "t", "12 345")], "<<>", gap=3, narrow=2, least=20)
    assert cell_width(first) == WIDTH
    assert first.startswith("g" * 47 + "…   " + "t" * 40)
    assert second.endswith("12 345")
    (kept,) = columns([("g" * 90, "t" * 40)], "<<", narrow=1, least=80)
    assert kept == "g" * 79 + "…  " + "t" * 40


def test_no_row_has_no_line() -> None:
    assert list(columns([], "")) == []


@given(TEXTS, st.integers(3, 40))
def test_a_clipped_text_fits(text: str, width: int) -> None:
    clipped = clip(text, width)
    assert cell_width(clipped) <= width
    assert clipped == text or (clipped.endswith("…") and text.startswith(clipped[:-1]))
