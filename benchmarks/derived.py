"""`python -m benchmarks.derived STORE OUT JOBS`: queues and index of a log written anew.

Without all that `rebuild` proves. The log is linked into OUT; files have the sizes of those of STORE.
"""

import os
import sys

from rmqinspect.forecast.settings import settings_of
from rmqinspect.index.geometry import Geometry
from rmqinspect.rescue.rebuild import Plan, rebuild_derived
from rmqinspect.store.discover import open_store


def main(store: str, out: str, jobs: str) -> None:
    """Write them."""
    found = open_store([store])
    settings, _ = settings_of(found)
    os.makedirs(os.path.join(out, "commitlog"))
    for segment in found.segments:
        os.link(segment.path, os.path.join(out, "commitlog", f"{segment.base:020d}"))
    plan = Plan(
        "5.3.3",
        queue_file=settings.mapped_file_size_consume_queue,
        index=Geometry(settings.max_hash_slot_num, settings.max_index_num),
    )
    rebuild_derived(out, plan, jobs=int(jobs))


if __name__ == "__main__":
    main(*sys.argv[1:])
