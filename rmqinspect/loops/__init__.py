"""Loops over bytes: plain Python, compiled to C when a wheel is built.

    text.py, records.py, pointers.py    the loops; this is all the source that there is
            .pxd                        their types in C, which only Cython reads
    *_rows.py                           numbers that they share with their callers: columns, bits, kinds
    loads.py, loads.pxd, loads.h        what is more than C's arithmetic, once in Python and once in C

The same source runs in two ways, with equal results:

    compiled     about 0.2 µs a record; the interpreter's lock is released
    uncompiled   about 20 µs a record: arrays become memoryviews, so each value is a Python int

Python takes the extension module where one lies beside the source. Nothing is compiled while a command runs.

Rules of a loop, by which both ways are equal and hostile bytes harmless:
- it fills arrays that its caller made, and makes no object: inside of `nogil` Cython refuses one;
- a comparison before each index proves that it is inside: neither way finds a negative one;
- every variable has 64 bits in C, and every sum stays within them: sizes are below 2^31, positions below 2^63 - 2^32;
- no number of a layout is written in it: `schemas.places` computes them, as variables of the module.
"""

from collections.abc import Callable

LARGE = 12 << 20
"""Bytes of records from which on uncompiled loops are worth a word."""

MEND = "pip install --force-reinstall --no-deps ."
"""What compiles the loops of an installation, in a clone: docs/install.md."""

_say: Callable[[str], None] | None = None
_is_said = False


def is_compiled() -> bool:
    """Return whether the loops are compiled, all of them."""
    from rmqinspect.loops import pointers, records, text

    return text.COMPILED and records.COMPILED and pointers.COMPILED


def way() -> str:
    """Return which of the two ways runs, as `info -v` and documents say it."""
    return "compiled" if is_compiled() else "uncompiled"


def expect(size: int) -> None:
    """Take notice that so many bytes of records are going to be read: many are worth a word if nothing is compiled."""
    global _is_said
    if size >= LARGE and _say is not None and not _is_said and not is_compiled():
        _is_said = True
        slow = "the loops over bytes are not compiled: reading takes up to a hundred times as long"
        _say(f"{slow}; to compile them, in a clone of rmqinspect: {MEND}")


def on_slow(say: Callable[[str], None] | None) -> None:
    """Set what is called, from any thread, the first time that much is read with loops that are not compiled."""
    global _say, _is_said
    _say, _is_said = say, False
