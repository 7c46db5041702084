"""`verify --since REPORT`: the options, what is said before the run, and the line of the screen."""

import secrets
from collections.abc import Callable, Iterator

import click

from rmqinspect.cli.verbs.verify import SinceOptions
from rmqinspect.store.model import Store
from rmqinspect.text import count, describe_size, escape, group_digits
from rmqinspect.verify.custody import Watch
from rmqinspect.verify.findings import moment
from rmqinspect.verify.report import read_earlier
from rmqinspect.verify.result import VerifyOptions
from rmqinspect.verify.since import Memory, Share, TakenOver

_MOST_NAMED = 3  # files


def read_share(options: SinceOptions, level: str) -> Share:
    """Return the part that is read again.

    :raises click.UsageError: it was asked for without an earlier report, or for a level that goes on from none.
    """
    if options.since is not None and level == "quick":
        raise click.UsageError("--since: level quick reads the end of the log only, and goes on from no report.")
    if options.reread is None:
        return Share()
    if options.since is None:
        raise click.UsageError("--reread takes a part of what --since leaves out: give --since REPORT, too.")
    return Share(options.reread, float(options.reread[:-1]), secrets.randbits(32))


def remember(store: Store, watch: Watch, options: VerifyOptions, since: str | None, share: Share) -> Memory:
    """Return what a run takes over from an earlier report, and keeps for the next run.

    :raises click.BadParameter: the report is not one of such a run on this store.
    """
    try:
        earlier = None if since is None else read_earlier(since, options)
        if earlier is not None:
            earlier.check(store)
        return Memory(store, watch.before, earlier, share)
    except ValueError as error:
        raise click.BadParameter(escape(str(error)), param_hint="--since") from error


def tell_taken_over(memory: Memory | None, remark: Callable[[str], None]) -> None:
    """Say what will not be read."""
    if memory is None or memory.earlier is None:
        return
    store, same = memory.store, memory.same
    segments = [segment for segment in store.segments if segment.name in same]
    size = sum(segment.size for segment in segments)
    words = f"{group_digits(len(segments))} of {count(len(store.segments), 'segment')}, {describe_size(size)}"
    again = f"; {count(len(memory.reread), 'file')} of them read again" if memory.reread else ""
    remark(f"as {memory.earlier.path} has them: {words}: not read, unless something new leads into them{again}")


def lines_of(taken: TakenOver) -> Iterator[str]:
    """Yield what the screen says of what was taken over."""
    queues, index_files = count(taken.queues, "queue"), count(taken.index_files, "index file")
    what = f"{count(taken.segments, 'segment')}, {queues}, {index_files}; {describe_size(taken.bytes)} of log not read"
    yield f"{taken.report} of {moment(taken.ended):%Y-%m-%dT%H:%M:%SZ}: taken over are {what}"
    if taken.changed:
        yield (
            f"changed since, and not only longer, or in the last minute before that run: {_named(taken.changed)}: "
            "read again, and what leads to or from it"
        )
    if taken.reread is not None:
        words = f"{count(len(taken.reread.files), 'file')} read again ({taken.reread.share}, seed {taken.reread.seed})"
        differ = taken.reread.differ
        yield f"{words}: {f'DIFFERENT, with the same size and time: {_named(differ)}' if differ else 'as they were'}"


def _named(files: list[str]) -> str:
    more = len(files) - _MOST_NAMED
    return ", ".join(files[:_MOST_NAMED]) + (f" and {count(more, 'more file')}" if more > 0 else "")
