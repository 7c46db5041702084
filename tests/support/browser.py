"""Headless Chromium, as Debian packs it, driven by Playwright: one browser for a module, a page for each test.

A page is a file on the disk, as one from an attachment is. What goes wrong in it is kept: errors, refusals of its own
policy, and every request for something that is not the file itself.
"""

import base64
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
"""In a container root runs the tests, and there is no /dev/shm to speak of."""


def chromium() -> str:
    """Return the path of the browser; a test that needs one fails without it."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "no Chromium: apt-get install chromium"
    return path


def browsers() -> Any:
    """Return a fixture of a module: `browser = browsers()`."""

    @pytest.fixture(scope="module")
    def browser() -> Iterator[Browser]:
        with sync_playwright() as playwright:
            started = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
            try:
                yield started
            finally:
                started.close()

    return browser


def policy(*scripts: str) -> str:
    """Return the policy under which a page with these inline scripts has to work."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    sources = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {sources}"


@dataclass
class Opened:
    """A page, and what went wrong in it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Assert that nothing went wrong, and nothing was asked for."""
        assert (self.errors, self.requests) == ([], [])


@contextmanager
def opened(
    browser: Browser, file: Path, init: Callable[[Page], None] | None = None, **context: Any
) -> Iterator[Opened]:
    """Open a file in a context of its own and, if nothing else failed, check it at the end.

    `context` are options such as `has_touch`, `viewport`, `color_scheme`, `java_script_enabled`.
    """
    made = browser.new_context(**context)
    try:
        page = made.new_page()
        found = Opened(page)
        page.on("console", lambda said: found.errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: found.errors.append(str(error)))
        page.on("request", lambda request: found.requests.append(request.url) if request.url != file.as_uri() else None)
        if init is not None:
            init(page)
        page.goto(file.as_uri())
        yield found
        found.check()
    finally:
        made.close()
