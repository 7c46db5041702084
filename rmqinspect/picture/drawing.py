"""The picture as SVG: what a page shows without script and in print, and what picture.js begins with.

Places are per cent of the width, so that it fits any page and no text is distorted; heights are pixels. A place that is
less than a pixel wide is drawn with an outline, so that it is seen. Colours are variables of picture.css; each kind
of bytes has a pattern, too, so that no colour has to be told from another.

    axis     0                                                                     327 680
    log      ##########|##########|####X#####|##########|....                      40 px
    lanes    a label and a bar each                                                26 px
"""

import json
from collections.abc import Iterator
from html import escape as escape_html
from importlib.resources import files

from rmqinspect.commitlog.log_runs import KINDS, Run, folded
from rmqinspect.picture.model import Lane, Picture
from rmqinspect.text import count, describe_offset, escape, group_digits

LOG_TOP, LOG_HEIGHT = 22, 40
LANE_TOP, LANE_HEIGHT, BAR_TOP, BAR_HEIGHT = 70, 28, 15, 8
LANES = 24  # that are drawn without script; the others are in the data
_EXACT = 2**53 - 1  # the largest integer up to which JavaScript has all
_CELLS = 1200  # runs of the static picture: more would be narrower than a pixel

_PATTERNS = {
    "records": "",
    "filler": '<path class="rm-ink" d="M0 7.5H8"/>',
    "zeros": '<circle class="rm-ink-fill" cx="4" cy="4" r="0.9"/>',
    "stale": '<path class="rm-ink" d="M0 2H8M0 6H8"/>',
    "bridged": '<path class="rm-ink" d="M2 0V8M6 0V8"/>',
    "missing": '<path class="rm-ink" d="M0 0L8 8"/>',
    "unread": '<circle class="rm-ink-fill" cx="2" cy="2" r="1"/><circle class="rm-ink-fill" cx="6" cy="6" r="1"/>',
    "damage": '<path class="rm-ink" d="M0 0L8 8M8 0L0 8"/>',
}


def script() -> str:
    """Return picture.js: it draws each figure of a page anew, from the data in it."""
    return files("rmqinspect.picture").joinpath("picture.js").read_text(encoding="utf-8")


def style() -> str:
    """Return picture.css."""
    return files("rmqinspect.picture").joinpath("picture.css").read_text(encoding="utf-8")


def figure(picture: Picture, name: str = "map") -> str:
    """Return the element of a page for a picture; `name` begins all ids in it."""
    return (
        f'<figure class="rm-map" id="{name}">{svg(picture, name)}'
        f'<figcaption class="rm-legend">{"".join(_legend(picture, name))}</figcaption>'
        f'<script type="application/json" class="rm-data">{json_in_html(picture)}</script></figure>'
    )


def json_in_html(picture: Picture) -> str:
    """Return the data of a picture as a script element holds it: nothing in it ends the element."""
    layout = {"log": [LOG_TOP, LOG_HEIGHT], "lane": [LANE_TOP, LANE_HEIGHT], "bar": [BAR_TOP, BAR_HEIGHT]}
    told = json.dumps(_escaped(picture.data() | {"layout": layout}), ensure_ascii=True, separators=(",", ":"))
    return told.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _escaped(value: object) -> object:
    r"""Return data with the texts as a screen shows them: no character that is unsafe, `\x1b` instead."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, int) and abs(value) > _EXACT:
        return str(value)
    if isinstance(value, list):
        return [_escaped(part) for part in value]
    if isinstance(value, dict):
        return {name: _escaped(part) for name, part in value.items()}
    return value


def svg(picture: Picture, name: str = "map") -> str:
    """Return the picture as an SVG element; `name` begins its ids."""
    lanes = picture.lanes()[:LANES]
    height = LANE_TOP + LANE_HEIGHT * len(lanes)
    return (
        f'<svg class="rm-svg" width="100%" height="{height}" role="img" aria-labelledby="{name}-title {name}-told">'
        f'<title id="{name}-title">{_safe(f"Map of the store {picture.store}")}</title>'
        f'<desc id="{name}-told">{_safe(description(picture))}</desc>'
        f"<defs>{''.join(_patterns(name))}</defs>"
        f"{''.join(_axis(picture))}{''.join(_log(picture, name))}"
        f"{''.join(part for number, lane in enumerate(lanes) for part in _lane(picture, number, lane))}"
        "</svg>"
    )


def description(picture: Picture) -> str:
    """Return the picture in words, for who does not see it."""
    if picture.start == picture.end:
        return "There is no log."
    parts = [
        f"{count(len(picture.strips), 'segment')}, physical offsets {group_digits(picture.start)} "
        f"to {group_digits(picture.end)}"
    ]
    if damaged := picture.damaged:
        parts.append(f"{count(len(damaged), 'damaged range')}, the first at {describe_offset(damaged[0].start)}")
    parts += [f"{mark.text}: {_span(mark.start, mark.end)}" for mark in picture.marks]
    return "; ".join(parts) + "."


def run_words(picture: Picture, run: Run) -> str:
    """Return what a run is and where."""
    mixed = ", and other bytes between" if run.mixed else ""
    codes = f" ({picture.codes[run.start]})" if run.kind == "damage" and run.start in picture.codes else ""
    size = count(run.end - run.start, "byte")
    return f"{run.kind}{codes}: {KINDS[run.kind]}{mixed}; {size}; {_place(picture, run.start)}"


def _place(picture: Picture, place: int) -> str:
    strip = picture.strip_at(place)
    inside = "" if strip is None else f", {strip.file} at {describe_offset(place - strip.start)}"
    return f"offset {describe_offset(place)}{inside}"


def _span(start: int, end: int) -> str:
    return group_digits(start) if start == end else f"{group_digits(start)} to {group_digits(end)}"


# --- parts ------------------------------------------------------------------------------------------------


def _patterns(name: str) -> Iterator[str]:
    for kind, drawn in _PATTERNS.items():
        yield (
            f'<pattern id="{name}-{kind}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<rect class="rm-{kind}" width="8" height="8"/>{drawn}</pattern>'
        )


def _axis(picture: Picture) -> Iterator[str]:
    yield f'<text class="rm-label" x="0" y="14">{group_digits(picture.start)}</text>'
    yield f'<text class="rm-label" x="100%" y="14" text-anchor="end">{group_digits(picture.end)}</text>'


def _log(picture: Picture, name: str) -> Iterator[str]:
    runs = folded(picture.runs, _CELLS)
    # Damage is drawn last: no neighbour hides it.
    for run in sorted(runs, key=lambda run: run.kind == "damage"):
        outline = ' class="rm-outline"' if run.kind == "damage" else ""
        yield (
            f'<rect{outline} x="{_at(picture, run.start)}" y="{LOG_TOP}" width="{_wide(picture, run.start, run.end)}" '
            f'height="{LOG_HEIGHT}" fill="url(#{name}-{run.kind})">'
            f"<title>{_safe(run_words(picture, run))}</title></rect>"
        )
    if len(picture.strips) <= _CELLS // 4:
        for strip in picture.strips[1:]:
            x = _at(picture, strip.start)
            yield f'<line class="rm-border" x1="{x}" x2="{x}" y1="{LOG_TOP}" y2="{LOG_TOP + LOG_HEIGHT}"/>'


def _lane(picture: Picture, number: int, lane: Lane) -> Iterator[str]:
    top = LANE_TOP + number * LANE_HEIGHT
    yield f'<text class="rm-label" x="0" y="{top + 11}">{_safe(lane.label)}</text>'
    for item in lane.items:
        is_tick = item.start == item.end
        y, height = (top + BAR_TOP - 3, BAR_HEIGHT + 6) if is_tick else (top + BAR_TOP, BAR_HEIGHT)
        wide = "2" if is_tick else _wide(picture, item.start, item.end)
        yield (
            f'<rect class="rm-item rm-{item.kind}" x="{_at(picture, item.start)}" y="{y}" width="{wide}" '
            f'height="{height}"><title>{_safe(item.text)}</title></rect>'
        )


def _legend(picture: Picture, name: str) -> Iterator[str]:
    """Yield the kinds of bytes that the picture has."""
    shown = {run.kind for run in picture.runs}
    for kind, words in KINDS.items():
        if kind in shown:
            yield (
                f'<span class="rm-key"><svg width="16" height="16" aria-hidden="true">'
                f'<rect width="16" height="16" fill="url(#{name}-{kind})"/></svg> <b>{kind}</b> {_safe(words)}</span> '
            )
    if picture.left_out:
        yield f"<span>{_safe(picture.left_out)}</span>"


def _at(picture: Picture, place: int) -> str:
    return f"{100 * (place - picture.start) / max(picture.end - picture.start, 1):.4f}%"


def _wide(picture: Picture, start: int, end: int) -> str:
    return f"{max(100 * (end - start) / max(picture.end - picture.start, 1), 0.0001):.4f}%"


def _safe(text: str) -> str:
    return escape_html(escape(text))
