"""Recognises lines of a broker's logs, whatever surrounds them, and reads their values."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

from rmqinspect.commands import fill_command
from rmqinspect.explain.entry import Explanation
from rmqinspect.explain.log_lines import LOG_LINES, LogLine, Value

_LONGEST = 2000  # characters of a line that are searched for values
_WORDS = re.compile(r"\w+")
_PATTERNS = tuple(line for line in LOG_LINES if line.pattern)


def plain(text: str) -> str:
    """Return the words of a text in lower case, separated by one space, without punctuation."""
    return " ".join(_WORDS.findall(text.lower()))


def recognise(row: str) -> list[LogLine]:
    """Return the lines whose phrase is in `row`; of overlapping phrases, the line with the longest."""
    words = _WORDS.findall(row.lower())
    candidates = [pair for word in _anchors().keys() & words for pair in _anchors()[word]]
    text = " ".join(words) if candidates else ""
    spans = [(start, start + len(phrase), line) for phrase, line in candidates if (start := text.find(phrase)) >= 0]
    if not spans:
        return [line for line in _PATTERNS if re.search(line.pattern, row[:_LONGEST], re.IGNORECASE)][:1]
    return list(
        dict.fromkeys(
            line
            for start, end, line in sorted(spans, key=lambda span: span[0])
            if not any(a <= start and end <= b and end - start < b - a for a, b, _ in spans)
        )
    )


def explain_line(line: LogLine, row: str) -> Explanation:
    """Return the explanation of a kind of line, with the values that `row` has."""
    found = list(read_values(line, row))
    # A value that begins with a hyphen would be parsed as an option.
    fitting = {value.fills: text for value, text in found if value.fills and text[0] != "-"}
    values = [(f"{value.name} {text}", _meaning(value, text)) for value, text in found]
    if line.judge is not None:
        numbers = {value.name: int(text) for value, text in found if re.fullmatch(r"-?\d{1,19}", text, re.ASCII)}
        values += [("together", text) for text in (line.judge(numbers),) if text]
    return Explanation(
        kind="log line",
        name=line.template,
        where=f"{line.alarm}; {line.source}, seen in {line.seen}",
        meaning=line.meaning,
        values=tuple(values),
        eras=line.quirks,
        next=tuple(fill_command(command, **fitting) for command in line.next),
        see=line.see,
    )


def read_values(line: LogLine, row: str) -> Iterator[tuple[Value, str]]:
    """Yield the values of a kind of line that `row` has, with their text."""
    for value in line.values:
        pattern = value.pattern or rf"(?<!\w){re.escape(value.name)}\s*[:=]\s*(-?\d+)"
        match = re.search(pattern, row[:_LONGEST], re.IGNORECASE)
        if match is not None:
            yield value, match[1]


def _meaning(value: Value, text: str) -> str:
    parts = [value.meaning]
    if value.describe is not None:
        try:
            parts.append(value.describe(text))
        except ValueError as error:  # a number too large for Java
            parts.append(str(error))
    return "; ".join(filter(None, parts))


@cache
def _anchors() -> Mapping[str, tuple[tuple[str, LogLine], ...]]:
    """Return all phrases by one of their words, so that few have to be searched for in a line.

    The word is the rarest; the first and the last of a phrase can be part of a longer word in a log.
    """
    phrases = [
        (plain(phrase), line)
        for line in LOG_LINES
        if not line.pattern
        for phrase in line.phrases or (line.template.split("{}")[0],)
    ]
    uses = Counter(word for phrase, _ in phrases for word in set(phrase.split()))
    by_word = defaultdict(list)
    for phrase, line in phrases:
        words = phrase.split()
        by_word[min(words[1:-1] or words[:1], key=lambda word: uses[word])].append((phrase, line))
    return {word: tuple(pairs) for word, pairs in by_word.items()}
