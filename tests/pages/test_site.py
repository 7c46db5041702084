"""The site that MkDocs builds of README.md and docs/: it builds without a warning, and loads nothing from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag

import pytest

from docs.build import hooks
from tests.support.samples import ROOT

# Where an element names what a browser fetches by itself. A link, `a`, is followed by a reader only.
_FETCHED = {"src", "srcset", "data", "poster", "action", "background"}


class _Page(HTMLParser):
    """What a page fetches, where its links lead, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.classes: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _FETCHED or (tag == "link" and name == "href"):
                self.fetched.append(value or "")
            elif tag == "a" and name == "href":
                self.links.append(value or "")
            elif name == "class":
                self.classes |= set((value or "").split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; built without a network, where the system lets a process be without one."""
    place = tmp_path_factory.mktemp("site") / "site"
    alone = ["unshare", "--map-root-user", "--net"]
    can = shutil.which("unshare") is not None and subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    command = [*alone, *build] if can else build
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    return {path.relative_to(site).as_posix(): _Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_of_docs_is_there_and_the_readme_is_the_start(site: Path, pages: dict[str, _Page]) -> None:
    assert pages.keys() >= {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert "NEXT START" in (site / "index.html").read_text(encoding="utf-8")
    assert {path.name for path in (site / "schemas").iterdir()} == {path.name for path in ROOT.glob("schemas/*.ksy")}
    assert not any("__pycache__" in str(path) or path.suffix == ".py" for path in site.rglob("*"))


def test_no_page_fetches_anything_from_elsewhere(site: Path, pages: dict[str, _Page]) -> None:
    fetched = [url for page in pages.values() for url in page.fetched]
    assert len(fetched) > 100
    assert [url for url in fetched if re.match(r"([a-z]+:)?//", url)] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [
        url for text in styles for url in re.findall(r"(?:url\(|@import)\s*[\"']?(?:[a-z]+:)?//[^)\"']*", text)
    ] == []
    # The theme's script would fetch a library for these.
    assert not any({"mermaid", "lightbox"} & page.classes for page in pages.values())


def test_every_link_inside_of_the_site_leads_to_a_file(site: Path, pages: dict[str, _Page]) -> None:
    for name, page in pages.items():
        for link in page.links:
            target = urldefrag(link)[0]
            if target and not re.match(r"[a-z]+:", target) and name != "404.html":
                path = (site / name).parent / target
                assert path.is_file() or (path / "index.html").is_file() or target in (".", "./", "../"), (name, link)


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("a `b](c)` d", ["a ", "`b](c)`", " d"]),
        ("```sh\n[x](y)\n```\n[x](y)", ["", "```sh\n[x](y)\n```", "\n[x](y)"]),
    ],
)
def test_links_in_code_are_left_alone(code: str, parts: list[str]) -> None:
    assert hooks._split(code) == parts
