"""Hooks of MkDocs: pages of the repository that lie outside of docs/, and links that lead there.

Every page is written for a reader of the repository: README.md links to docs/verify.md, and docs/formats.md to
../schemas/index.ksy. On the site docs/ is the root. So a link is resolved in the repository, and written again as the
way from the page to that file on the site; a link to what the site does not have fails the build (--strict).
"""

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]

# Files outside of docs/ that the site has, too, at the same place.
_MORE = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"),
    *("samples/README.md", "samples/*/README.md", "benchmarks/README.md", "tests/data/README.md"),
    *("tests/broker/README.md", "schemas/*.ksy"),
)
_LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the files from outside of docs/."""
    from mkdocs.structure.files import File

    for pattern in _MORE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Return a page with the links of the site."""
    at = page.file.src_uri
    origin = at if (ROOT / at).is_file() and not (ROOT / "docs" / at).is_file() else f"docs/{at}"

    def lead(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link[2]))
        if (ROOT / target / "README.md").is_file():  # GitHub shows it for its folder
            target += "/README.md"
        inside = target.removeprefix("docs/")
        return link[1] + posixpath.relpath(inside, posixpath.dirname(at) or ".")

    return "".join(part if number % 2 else _LINK.sub(lead, part) for number, part in enumerate(_split(markdown)))


def _split(markdown: str) -> list[str]:
    """Return a page as texts and code, in turns, beginning with a text."""
    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [markdown[end : code.start()], code[0]]
        end = code.end()
    return [*parts, markdown[end:]]
