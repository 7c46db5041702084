"""What a run of `verify` is asked to do."""

from dataclasses import dataclass

from rmqinspect.verify.codes import BY_CODE, DEFAULT_LEVEL


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The level, codes and limits of a run."""

    level: str = DEFAULT_LEVEL
    codes: frozenset[str] = frozenset(BY_CODE)
    max_findings: int = 1000  # rows per code; counts stay exact
    jobs: int = 1  # threads
    broker_version: str | None = None  # a release of version_estimate.RELEASES; None: estimated from the store
