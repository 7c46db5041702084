"""Numbers made of bits, and their bits. The texts are in names.toml."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmqinspect.explain import values
from rmqinspect.explain.entry import Named
from rmqinspect.explain.names import NAMES
from rmqinspect.schemas.message import SysFlag

_SHOW = "rmqinspect show STORE --at OFFSET"

# Names and values are those of SysFlag.
SYS_FLAG_BITS: Mapping[SysFlag, str] = {SysFlag[name]: meaning for name, meaning in NAMES["sys_flag"].items()}


@dataclass(frozen=True, slots=True)
class Bits:
    """A number whose bits have names."""

    name: str
    where: str
    meaning: str
    next: str  # a command
    bits: tuple[tuple[int, str, str], ...]  # mask, name, meaning
    also: tuple[str, ...] = ()

    def describe(self, text: str) -> str:
        """Name the bits that are set."""
        value = values.number(text, 32)
        names = [name for mask, name, _ in self.bits if value & mask]
        if rest := value & ~sum(mask for mask, _, _ in self.bits) & 0xFFFFFFFF:
            names.append(f"bits {rest:#x} without a meaning")
        return f"{value} is {', '.join(names) or 'none'}"


def _load() -> Iterator[Bits]:
    rows: Mapping[str, Mapping[str, Any]] = NAMES["bits"]
    for name, row in rows.items():
        yield Bits(name=name, **row)


_BITS = tuple(_load())
(RUNNING_FLAGS,) = (table for table in _BITS if table.name == "flagBits")


def bits() -> Iterator[Named]:
    """Yield the numbers made of bits, and each of their bits."""
    for flag, meaning in SYS_FLAG_BITS.items():
        yield Named("bit", str(flag.name), f"SYSFLAG, {flag:#x}", meaning, see=("SYSFLAG",), next=(_SHOW,))
    for table in _BITS:
        names = tuple(name for _, name, _ in table.bits)
        yield Named(
            "field",
            table.name,
            table.where,
            table.meaning,
            also=table.also,
            describe=table.describe,
            see=names,
            next=(table.next,),
        )
        for mask, name, meaning in table.bits:
            yield Named("bit", name, f"{table.name}, {mask:#x}", meaning, see=(table.name,), next=(table.next,))
