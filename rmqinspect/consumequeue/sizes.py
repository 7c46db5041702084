"""How long the files of consume queues are: nothing in a store says it, so most of them do."""

from collections import Counter

from rmqinspect.store.model import Store


def usual_sizes(store: Store) -> dict[str, int]:
    """Return the length of most queue files, by kind; of equally frequent ones the greatest."""
    lengths: dict[str, Counter[int]] = {}
    for file in store.queue_files:
        if file.noted is None and file.size:
            lengths.setdefault(file.kind, Counter())[file.size] += 1
    return {kind: max(of_kind, key=lambda size: (of_kind[size], size)) for kind, of_kind in lengths.items()}
