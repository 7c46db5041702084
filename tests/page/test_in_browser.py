"""The page in a real browser: nothing is refused, nothing foreign runs, everybody can read it, and it prints."""

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from rmqinspect.cli import main
from tests.page.test_page import HOSTILE, hostile
from tests.support.browser import browsers
from tests.support.samples import sample

__all__ = ["hostile"]

browser = browsers()

PHONE, DESK = 320, 1280  # CSS pixels; 1280 at 400 % is 320


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a damaged store."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["report", str(sample("flipped-bit-5.3.3")), "--hash", "sha256", "-o", str(path), "-q"]) == 3
    return path


@pytest.fixture(scope="module")
def fleet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of three stores, one of which is not there."""
    path = tmp_path_factory.mktemp("page") / "fleet.html"
    words = [f"a={sample('healthy-4.9.7')}", f"b={sample('zeroed-page-4.7.1')}", "c=/nowhere"]
    assert main(["report", *words, "-o", str(path), "-q", "-j", "1"]) == 3
    return path


def opened(browser: Browser, path: Path, told: list[str], **settings: Any) -> Page:
    """Open a page; `told` gets what the console says, and what was asked for beside the page itself."""
    page = browser.new_context(**settings).new_page()
    page.on("console", lambda message: told.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: told.append(f"error: {error}"))
    page.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: told.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    return page


def test_nothing_is_said_on_the_console_and_nothing_is_loaded(browser: Browser, page_file: Path) -> None:
    told: list[str] = []
    page = opened(browser, page_file, told)
    assert page.evaluate("document.querySelectorAll('svg').length") > 5
    assert "loses 145 messages" in page.inner_text(".answer")
    assert told == []


def test_the_policy_is_in_force(browser: Browser, page_file: Path) -> None:
    told: list[str] = []
    page = opened(browser, page_file, told)
    page.evaluate(
        """() => { const script = document.createElement("script"); script.textContent = "window.ran = 1";
                   document.body.append(script);
                   const image = new Image(); image.src = "http://127.0.0.1:9/x.png"; document.body.append(image); }"""
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.ran") is None
    assert any("script-src" in line for line in told)
    assert any("img-src" in line or "default-src" in line for line in told)


@pytest.mark.parametrize(
    ("which", "scheme", "width"),
    [
        ("page_file", "light", DESK),
        ("page_file", "dark", DESK),
        ("page_file", "light", PHONE),
        ("fleet_file", "dark", PHONE),
    ],
    ids=["light", "dark", "phone", "fleet"],
)
def test_everybody_can_read_it(
    browser: Browser, request: pytest.FixtureRequest, which: str, scheme: Any, width: int
) -> None:
    path: Path = request.getfixturevalue(which)
    # The checker is a script of its own, which the policy of the page would refuse.
    settings = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}, "bypass_csp": True}
    page = opened(browser, path, [], **settings)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert len(found.response["passes"]) > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_checker_finds_what_is_wrong(browser: Browser, page_file: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt.html"
    html = page_file.read_text().replace('<html lang="en">', "<html>").replace("--text: #1b1f24", "--text: #cccccc")
    spoilt.write_text(html)
    found = Axe().run(opened(browser, spoilt, [], bypass_csp=True, color_scheme="light"))
    assert {violation["id"] for violation in found.response["violations"]} >= {"html-has-lang", "color-contrast"}


def test_tab_goes_through_all_that_can_be_used(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file, [])
    expected = page.evaluate(
        """[...document.querySelectorAll('a[href], button, summary, [tabindex="0"]')]
           .filter(element => element.checkVisibility()).length"""
    )
    seen = []
    for _ in range(expected):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.outerHTML.slice(0, 60)"))
        # What has the focus shows it: by an outline, in the map by a thick stroke.
        style = page.evaluate(
            "(({outlineStyle, strokeWidth}) => [outlineStyle, strokeWidth])(getComputedStyle(document.activeElement))"
        )
        assert style[0] != "none" or style[1] == "3px", (seen[-1], style)
    assert 'class="skip"' in seen[0]
    assert not any(one.startswith("<body") for one in seen)
    assert any(one.startswith("<summary") for one in seen)


def test_the_map_on_the_page_finds_the_damage(browser: Browser, page_file: Path) -> None:
    told: list[str] = []
    page = opened(browser, page_file, told)
    page.get_by_role("button", name="Next damage").click()
    words = page.locator(".rm-told")
    assert "commitlog/00000000000000065536" in words.inner_text()
    assert "rmqinspect show" in words.locator("code").first.inner_text()
    assert "--at 97187" in words.locator("code").first.inner_text()
    assert told == []


def test_it_prints(browser: Browser, page_file: Path, tmp_path: Path) -> None:
    page = opened(browser, page_file, [])
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # Nothing is cut off at the right of a sheet: A4 has 210 mm, less the margins.
    page.set_viewport_size({"width": 718, "height": 1000})
    wide = page.evaluate(
        "[...document.querySelectorAll('table')].filter(e => e.getBoundingClientRect().right > 718).length"
    )
    assert wide == 0
    raw = page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    assert raw.startswith(b"%PDF")
    assert raw.count(b"/Type /Page\n") >= 2


def test_it_can_be_read_without_a_script(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file, [], java_script_enabled=False)
    assert "loses 145 messages" in page.inner_text(".answer")
    page.get_by_text("The same as a table").click()
    assert page.locator("details table").is_visible()


def test_hostile_names_run_nothing(browser: Browser, hostile: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    main(["report", str(hostile), "-o", str(path), "-q", "--hash", "sha256"])
    told: list[str] = []
    page = opened(browser, path, told, viewport={"width": PHONE, "height": 900})
    assert told == []
    assert page.evaluate("document.images.length") == 0
    assert page.locator("th", has_text=HOSTILE[0]).count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
