"""A page of `rmqinspect report`, read as a browser shows it without a script: texts by section, and every tag."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

VOID = frozenset(("meta", "br", "img", "link", "input", "hr", "base"))


class Page(HTMLParser):
    """The tags and texts of a page. Texts have plain blanks, also where the page keeps words together."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sections: dict[str, list[str]] = {}  # texts by the id that labels the section
        self.rows: dict[str, list[list[str]]] = {}  # cells of tables by section
        self.codes: dict[str, list[str]] = {}  # texts of `code` by section
        self.data: list[Any] = []  # of the maps, one for each store
        self._open: list[tuple[str, str]] = []  # tag, section
        self._cell: list[str] | None = None
        self.feed(html)
        self.close()
        assert not self._open, self._open

    def text(self, section: str) -> str:
        """Return the text of a section in one line."""
        return " ".join(" ".join(self.sections[section]).split())

    @property
    def _section(self) -> str:
        return self._open[-1][1] if self._open else ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag; the label of a section names what is in it."""
        given = dict(attrs)
        assert len(given) == len(attrs), attrs
        self.tags.append((tag, given))
        label = given.get("aria-labelledby") if tag in ("section", "article") else None
        section = label.split()[-1] if label else self._section
        if tag not in VOID:
            self._open.append((tag, section))
        if tag == "tr":
            self.rows.setdefault(section, []).append([])
        elif tag in ("td", "th"):
            self.rows[section][-1].append("")
            self._cell = self.rows[section][-1]
        elif tag == "code":
            self.codes.setdefault(section, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that holds nothing."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last: the page leaves none open."""
        opened, _ = self._open.pop()
        assert opened == tag, (opened, tag)
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data: str) -> None:
        """Add a text to its section, its cell and its code."""
        if self._open and self._open[-1][0] == "script":
            if dict(self.tags[-1][1]).get("type") == "application/json":
                self.data.append(json.loads(data))
            return
        if self._open and self._open[-1][0] == "style":
            return
        text = data.replace("\N{NO-BREAK SPACE}", " ")
        self.sections.setdefault(self._section, []).append(text)
        if self._cell is not None:
            self._cell[-1] += text
        if self._open and self._open[-1][0] == "code":
            self.codes[self._section][-1] += text

    def references(self) -> Iterator[str]:
        """Yield what the page would load, or send its reader to."""
        for tag, given in self.tags:
            for name, value in given.items():
                if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster", "formaction"):
                    yield f"{tag} {name}={value}"
