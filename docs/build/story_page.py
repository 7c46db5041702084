"""`python -m docs.build.story_page > docs/story.md` tells of a crashed store; its commands are run for the page."""

import contextlib
import io
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from rmqinspect.cli import main
from rmqinspect.text import group_digits

SAMPLE = "flipped-bit-5.3.3"
RELEASE = "5.3.3"

# What real stores of RELEASE say that were started on each, and asked for all messages of all queues:
# (where the log ends, messages). tests/pages/test_story.py starts them.
SERVED = {"store": (97_187, 113), "new": (217_698, 250)}

_STORY = """\
# A true story

Written by `python -m docs.build.story_page > docs/story.md`, which runs every command on this page on a copy of
[`samples/{sample}/store`](../samples/README.md).

A broker of RocketMQ {release} was killed in the night, and on its disk one bit has changed. The store is here as the
folder `store`. Nobody has started the broker again, and nobody should before the third step: the start decides what is
lost.

## 1. What is this?

`info` reads little, whatever the size of the store.

{info}

The broker did not stop in order, and there is more than that: the next start would end the log long before its end.
`info` does not count what that costs.

## 2. What is damaged?

{verify}

One bit of one body. All 144 records behind it are sound: no disk has lost them. Exit status 3 says damage.

## 3. What would a start do?

{forecast}

The start after a crash reads the log from its first segments on, ends it at the first record that it does not like, and
deletes the segments behind. The 144 sound records would go with the damaged one, and nobody would be told. Below
`instead` stand other ways to start this store; and before any of them, the store is to be copied.

## 4. Save what the start would lose

Whatever is done next, these messages are now in a file of their own, to be looked at or sent again
([runbook](runbook.md#8-send-again-what-was-lost)).

{decode}

## 5. Make a store that is served

`salvage` writes a new store beside the old one, which it only reads. The flipped bit is set back, because the record's
checksum names it: setting back no other single bit makes it right. What was done to which byte is in the receipt,
`new.receipt.json`.

{salvage}

## 6. Is the new one whole?

{again}

## 7. Served again

RocketMQ's own store, {release}, was started on a copy of each folder, and asked for every message of every queue, as a
consumer does. A test repeats that.

| started on | the log ends at | messages that a consumer gets |
|---|---|---|
{served}

The other 13 of the 263 records are half messages and rollbacks: they have no place in a queue. What to do where less
can be repaired than here, where a replica helps, and what to send again, is in the [runbook](runbook.md).
"""

# Paragraph -> the command that is shown there.
COMMANDS = {
    "info": "rmqinspect info store",
    "verify": "rmqinspect verify store",
    "forecast": "rmqinspect forecast store",
    "decode": "rmqinspect decode store --lost-at-start -o lost.parquet",
    "salvage": "rmqinspect salvage store -o new",
    "again": "rmqinspect verify new",
}

# What differs from machine to machine: how much of a hole is read, how a file is copied.
_VARIES = ((r"^read [0-9.]+ \w+\n", ""), (r"\breflinked\b", "copied"))


def page(folder: Path) -> str:
    """Run the story in an empty folder and return the page in Markdown; `store` and `new` are left there."""
    root = Path(__file__).parents[2]
    shutil.copytree(root / "samples" / SAMPLE / "store", folder / "store")
    with contextlib.chdir(folder):
        printed = {name: _transcript(words) for name, words in COMMANDS.items()}
    served = (f"| `{name}` | {group_digits(end)} | {messages} |" for name, (end, messages) in SERVED.items())
    return _STORY.format(sample=SAMPLE, release=RELEASE, served="\n".join(served), **printed)


def _transcript(words: str) -> str:
    """Run a command and return it as a block with all that it prints, as a terminal shows it."""
    screen, hook = io.StringIO(), sys.excepthook
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        status = int(main(shlex.split(words)[1:]))
    sys.excepthook = hook
    text = screen.getvalue()
    for pattern, steady in _VARIES:
        text = re.sub(pattern, steady, text, flags=re.MULTILINE)
    return f"```text\n$ {words}    # exit status {status}\n{text}```"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(page(Path(made)), end="")
