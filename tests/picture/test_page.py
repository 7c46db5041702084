"""The map in a real browser, under the policy of the page: drawn, zoomed, moved, read out and copied from."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from rmqinspect.commitlog.log_runs import Run, painted
from rmqinspect.picture.drawing import figure, script, style
from rmqinspect.picture.model import Picture, Strip
from tests.picture.test_documents import HOSTILE, damaged, drawn
from tests.support.browser import browsers, opened, policy

browser = browsers()
WIDE: dict[str, Any] = {"viewport": {"width": 1000, "height": 800}}


def written(folder: Path, *pictures: Picture, scripted: bool = True) -> Path:
    """Write a page with pictures, as a report has them."""
    code = script() if scripted else ""
    figures = "".join(figure(picture, f"map{number}") for number, picture in enumerate(pictures))
    # Beside the policy of the page: a text that is parsed as markup is an error.
    strict = f"{policy(code)}; require-trusted-types-for 'script'"
    file = folder / "page.html"
    file.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>map</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{strict}"><style>{style()}</style></head>'
        f"<body><main>{figures}</main>{f'<script>{code}</script>' if scripted else ''}</body></html>",
        encoding="utf-8",
    )
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a store with one damaged record."""
    return written(tmp_path_factory.mktemp("page"), drawn(*damaged()))


def view(page: Page) -> tuple[int, int]:
    """Return what of the log is seen, once it is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shown = page.locator("figure.rm-map").first
    return int(shown.get_attribute("data-from") or -1), int(shown.get_attribute("data-to") or -1)


def damaged_range() -> tuple[int, int]:
    """Return the damaged bytes as the report of verify has them."""
    (row,) = [row for row in damaged()[0].findings if row.code == "CL-CRC-BODY"]
    assert row.physical_offset is not None
    assert row.length is not None
    return row.physical_offset, row.physical_offset + row.length


def pixels_of(page: Page, start: int, end: int) -> tuple[float, float]:
    """Return where bytes of the log are in the window, by the view."""
    low, high = view(page)
    box = page.locator("svg.rm-svg").first.bounding_box()
    assert box is not None
    return box["x"] + (start - low) / (high - low) * box["width"], (end - start) / (high - low) * box["width"]


def test_the_damage_stands_where_verify_found_it_and_its_command_shows_it(browser: Browser, file: Path) -> None:
    start, end = damaged_range()
    with opened(browser, file, **WIDE) as told:
        page = told.page
        assert view(page) == (0, 327680)
        outline = page.locator(".rm-outline")
        assert outline.count() == 1
        for _ in range(2):
            left, width = pixels_of(page, start, end)
            box = outline.bounding_box()
            assert box is not None
            assert abs(box["x"] + box["width"] / 2 - left - width / 2) < 3
            assert box["width"] == pytest.approx(width, abs=5)
            page.keyboard.press("n") if page.evaluate("document.activeElement !== document.body") else outline.focus()
            page.keyboard.press("n")
        assert view(page)[1] - view(page)[0] < 3000
        assert page.locator(".rm-told code").inner_text() == f"rmqinspect show STORE --at {start}"
        words = page.locator(".rm-told div").inner_text().replace("\u00a0", " ")
        assert "commitlog/00000000000000065536 at 31 651 (0x7ba3)" in words
        assert "326 bytes" in words
        assert "offset 97 187 (0x17ba3) to 97 513" in words
        outline.hover()
        assert page.locator(".rm-told code").inner_text() == f"rmqinspect show STORE --at {start}"


def test_the_wheel_zooms_at_the_pointer_and_scrolls_where_nothing_is_to_zoom(browser: Browser, file: Path) -> None:
    with opened(browser, file, viewport={"width": 1000, "height": 300}) as told:
        page = told.page
        box = page.locator("svg.rm-svg").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 40)
        for _ in range(8):
            page.mouse.wheel(0, -100)
        low, high = view(page)
        assert high - low < 327680 / 5
        assert abs(low + (high - low) / 4 - 327680 / 4) < 100
        page.keyboard.down("Shift")
        page.mouse.wheel(0, 100)
        page.keyboard.up("Shift")
        assert view(page)[0] > low
        for _ in range(12):
            page.mouse.wheel(0, 100)
        page.wait_for_function("scrollY > 0")
        assert view(page) == (0, 327680)


def test_keys_move_and_zoom_and_end_at_the_ends(browser: Browser, file: Path) -> None:
    with opened(browser, file, **WIDE) as told:
        page = told.page
        page.locator("svg.rm-svg").first.focus()
        for _ in range(6):
            page.keyboard.press("+")
        low, high = view(page)
        size = high - low
        assert size < 327680 / 3
        page.keyboard.press("ArrowRight")
        assert view(page)[0] == pytest.approx(low + size * 0.2, abs=2)
        page.keyboard.press("End")
        assert view(page)[1] == 327680
        page.keyboard.press("ArrowRight")
        assert view(page)[1] == 327680
        page.keyboard.press("Home")
        assert view(page)[0] == 0
        page.keyboard.press("-")
        assert view(page)[1] == pytest.approx(size * 1.25, abs=2)
        for _ in range(60):
            page.keyboard.press("+")
        assert view(page)[1] - view(page)[0] == 16
        page.keyboard.press("Escape")
        assert view(page) == (0, 327680)


def test_tab_goes_through_damage_and_marks_and_enter_copies_the_command(browser: Browser, file: Path) -> None:
    with opened(browser, file, permissions=["clipboard-read", "clipboard-write"], **WIDE) as told:
        page = told.page
        page.locator("svg.rm-svg").first.focus()
        labels = []
        while page.evaluate("document.activeElement !== document.body"):
            page.keyboard.press("Tab")
            label = page.evaluate(
                "document.activeElement.closest('svg') && document.activeElement.getAttribute('aria-label')"
            )
            if label is None:
                break
            labels.append(label)
        marks = [mark.text for mark in drawn(*damaged()).marks]
        assert labels[0].startswith("damage (CL-CRC-BODY): ")
        assert len(labels) == 1 + len(marks)
        assert all(any(label.startswith(text) for label in labels) for text in marks)
        assert page.locator("svg [role=button]").count() == len(labels)
        page.locator(".rm-outline").focus()
        page.keyboard.press("Enter")
        page.get_by_text("copied", exact=True).wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == f"rmqinspect show STORE --at {damaged_range()[0]}"


def test_two_fingers_zoom_and_one_moves(browser: Browser, file: Path) -> None:
    with opened(browser, file, has_touch=True, is_mobile=True, viewport={"width": 360, "height": 740}) as told:
        page = told.page
        client = page.context.new_cdp_session(page)
        box = page.locator("svg.rm-svg").bounding_box()
        assert box is not None
        middle, y = box["x"] + box["width"] / 2, box["y"] + 40

        def touch(kind: str, *places: float) -> None:
            points = [{"x": x, "y": y, "id": number} for number, x in enumerate(places)]
            client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", middle - 20, middle + 20)
        for step in range(1, 9):
            touch("touchMove", middle - 20 - 10 * step, middle + 20 + 10 * step)
        touch("touchEnd")
        low, high = view(page)
        assert high - low < 327680 / 3
        assert abs((low + high) / 2 - 327680 / 2) < 327680 / 10
        touch("touchStart", middle)
        for step in range(1, 9):
            touch("touchMove", middle - 5 * step)
        touch("touchEnd")
        assert view(page)[0] > low
        assert view(page)[1] - view(page)[0] == pytest.approx(high - low, abs=2)


@pytest.mark.parametrize("scripted", [True, False])
def test_hostile_texts_are_texts(browser: Browser, tmp_path: Path, scripted: bool) -> None:
    picture = drawn(*damaged())
    bad = Picture(
        HOSTILE,
        picture.start,
        picture.end,
        [strip._replace(file=HOSTILE) for strip in picture.strips],
        picture.runs,
        [mark._replace(text=HOSTILE) for mark in picture.marks],
        [row._replace(name=HOSTILE) for row in picture.queues],
    )
    with opened(browser, written(tmp_path, bad, picture, scripted=scripted), **WIDE) as told:
        assert told.page.locator("img").count() == 0
        assert told.page.locator("figure").count() == 2
        if scripted:
            told.page.locator(".rm-outline").first.focus()
            assert "onerror" in told.page.locator(".rm-told").first.inner_text()


def test_a_terabyte_is_seen_whole_and_from_near(browser: Browser, tmp_path: Path) -> None:
    gib = 1 << 30
    strips = [Strip(f"commitlog/{at:020}", at, at + gib) for at in range(0, 1000 * gib, gib)]
    bad = [Run(at, at + 1, "damage") for at in range(77, 1000 * gib, gib)]
    runs = painted([[Run(0, 1000 * gib, "records")], bad], 0, 1000 * gib)
    picture = Picture("S", 0, 1000 * gib, strips, runs)
    with opened(browser, written(tmp_path, picture), **WIDE) as told:
        page = told.page
        assert view(page) == (0, 1000 * gib)
        borders = page.locator(".rm-divide")
        assert borders.count() == 999
        assert not borders.first.is_visible()
        assert page.locator(".rm-outline").count() == 1000
        page.locator("svg.rm-svg").focus()
        for _ in range(3):
            page.keyboard.press("n")
        assert page.locator(".rm-told code").inner_text() == f"rmqinspect show S --at {2 * gib + 77}"
        assert f"commitlog/{2 * gib:020} at 77 (0x4d)" in page.locator(".rm-told div").inner_text()
        for _ in range(60):
            page.keyboard.press("-")
        for _ in range(20):
            page.keyboard.press("+")
        assert page.locator(".rm-divide").nth(500).is_visible()


def test_without_script_and_in_print_the_whole_picture_is_there(browser: Browser, file: Path, tmp_path: Path) -> None:
    static: dict[str, Any] = {**WIDE, "java_script_enabled": False}
    with opened(browser, file, **static) as told:
        damage = told.page.locator(".rm-outline title")
        assert re.match(r"damage \(CL-CRC-BODY\): .*; 326 bytes; offset 97 187", damage.text_content() or "")
        before = told.page.locator("svg.rm-svg rect").count()
    with opened(browser, file, **WIDE) as told:
        page = told.page
        page.locator("svg.rm-svg").focus()
        page.keyboard.press("+")
        zoomed = view(page)
        assert zoomed != (0, 327680)
        shown = "document.querySelector('figure').dataset"
        page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {shown}.from + ' ' + {shown}.to }})")
        assert page.pdf().startswith(b"%PDF")
        assert page.evaluate("window.printed") == "0 327680"
        assert view(page) == zoomed
        page.emulate_media(media="print")
        assert not page.locator(".rm-bar").is_visible()
        assert page.locator("svg.rm-svg rect").count() >= before
