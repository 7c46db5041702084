"""Codes by the part they play when findings are put together."""

# Findings that say what was not judged always get a row.
NEVER_CAPPED = frozenset({"ST-UNCHECKED", "ST-IO"})

# Findings about records that stand among those of the log (CL-), by physical offset.
OF_RECORDS = frozenset({"CQ-MISSING", "CQ-BEHIND", "IX-MISSING", "IX-NONE"})

# Gaps of the log: a pointer into one shows what it held and is no finding of its own.
GAPS = frozenset({"CL-MAGIC", "CL-LENGTH", "CL-TORN-TAIL", "CL-ZERO-INSIDE", "CL-HOLE"})

# Findings about queue units: their physical offset is where the unit points.
OF_UNITS = frozenset(
    {"CQ-DANGLING", "CQ-BEYOND", "CQ-MISMATCH", "CQ-TAG", "CQ-SHIFT", "CQ-ORDER", "BQ-COUNT", "BQ-ORDER", "EX-ADDRESS"}
)

# Queue units so wrong that their order means nothing.
WRONG_UNITS = frozenset({"CQ-DANGLING", "CQ-BEYOND", "CQ-MISMATCH"})

# Findings whose expected and found values are one field of so many bits: one flipped bit may explain them.
FIELD_BITS = {
    "CQ-DANGLING": 64,
    "CQ-BEYOND": 64,
    "CQ-MISMATCH": 32,
    "CQ-TAG": 64,
    "BQ-COUNT": 64,
}
