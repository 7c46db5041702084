"""`python -m docs.build.architecture_page > docs/architecture.md` writes the page; the picture comes from `floors`."""

from collections.abc import Iterator
from itertools import groupby

from docs.build.floors import DOORS, FLOORS, GROUND, LEAVES, Folder

_CELL = 14  # characters of the widest folder name and the space behind it

_HEAD = """\
# Architecture

Written by `python -m docs.build.architecture_page > docs/architecture.md`.

A store is a set of files, a file is a run of records, a record has a layout. `schemas/` declares the layouts;
`rmqinspect/` reads the bytes. Above the readers one thing is passed on: Arrow record batches with a fixed schema, so
every table can be printed, exported and read by Spark without code per command and format.

## Floors

A folder imports folders of lower floors only, and the ground. `tests/test_architecture.py` compares every import in the
code, also those inside functions, with the list in `docs/build/floors.py`; an entry that nothing uses fails the test,
too.
"""

_REST = """\
## The way of a record

```text
bytes on disk
  |  store/reader.py            the only module that opens evidence: ranges of a file, limited by --read-rate
  v
split                           a byte range of one segment: the unit of parallel work (commitlog/gaps.py)
  |  commitlog/scan.py          walks the chain of records window by window; after damage, find_record.py finds the
  v                             next record whose lengths, offset and CRC agree
RecordRun and Gap               columns of many records (numpy); every other byte lies in exactly one gap
  |
  +--> row                      tables/messages.py: an Arrow batch; filters.py selects; output/ prints it
  +--> finding                  verify/split.py checks the run; queue_join.py, index_join.py and pointers.py join it
  |                             with what points at it; damage/ explains it; report.py and cli/ print it
  |       +--> next start       forecast/fed_scan.py takes the same records, so that the log is read once
  +--> Parquet file             export/part.py writes the batches of one part; the job commits all parts at the end
```

Workers (threads or Spark tasks) get splits, return results in the order of the log, and never write to the store.
Memory is bounded by the window and the batch, not by the store. The same split gives the same rows in every engine.

### From find to the life of a message

```text
filters                         a key, an id, an offset, a topic, a queue offset, times
  |  find/plan.py               the spans of the log that have to be read: by index, by units (find/ways.py), by times
  v
spans                           find/search.py reads them once; every filter is applied to every record in them
  |
  v
hits, or a miss                 find/finding.py: which store answers, and from evidence why another does not
  |                             (find/misses.py; find/places.py: expired, damaged, not yet written, of another
  |                             record; find/answers.py: the same in a sentence)
  |  find/life_records.py       records with the same UNIQ_KEY: by the index, by what a record names, by reading
  v
life                            find/life.py: unit, index entries, copies, in the order of the log;
                                find/consumers.py: which groups have passed it; cli/life_screen.py prints
```

## Readers of a layout

Three readers follow the same declaration: `construct`, for one record (`show`, tests); a numpy dtype computed from it
(`codec/layout.py`), for rows of one size; and loops (`loops/`) for the records of a
window, which find each field at a place computed from it. Tests read the same bytes each way and compare every field.

## Where an idea lives

| idea | home |
|---|---|
| who opens evidence | `store/reader.py` |
| where nothing is ever written | `store/outside.py` |
| which file of a path is what | `store/discover.py`, `store/file_type.py` |
| the walk from record to record, and behind damage | `commitlog/scan.py`, `commitlog/find_record.py` |
| the record at an offset: head, fields, bytes | `commitlog/record_reader.py` |
| who reads a unit; what is a filler | `consumequeue/units.py` |
| who decides the minimum and maximum of a queue | `consumequeue/bounds.py`; at a start: `forecast/queue.py` |
| rows by key, first and next; the first rule that holds | `codec/arrays.py` |
| ranges: merged, intersected, left over | `codec/arrays.py` |
| the walk over the log for rows and sums | `tables/read_log.py` |
| filters of messages | `tables/filters.py` |
| what differs by release | `broker/rules.py`; `broker/start_rules.py`, `broker/read_rules.py`, `broker/own_rules.py` |
| which release wrote a store | `broker/version_estimate.py` |
| rows that point at a record, and the rules for them | `verify/pointers.py` |
| who words a finding | `verify/codes.toml`; its fields: `verify/findings.py` |
| the report of verify: written, read, documented | `verify/report.py` |
| who ran it, where and with what: the end of every document | `system/run.py` |
| how a file of the evidence is opened, and keeps its access time | `system/filesystem.py` |
| what a stranger can check of an answer | `find/evidence.py`, `find/evidence_document.py` |
| the verdict of a start | `forecast/versions.py`; its words: `forecast/words.py` |
| where a rescued store grows, and how it appears | `rescue/new_store.py` |
| queues, index and checkpoint written from a log | `rescue/rebuild.py` |
| the log of several sources as one; what is sound of it | `rescue/sources.py`, `rescue/log_plan.py` |
| what repairs a record, and what proves it | `rescue/repair.py` |
| what a unit, index entries and times say against a record that proves itself | `rescue/contradicted.py` |
| what the order of a queue's records says, where no unit does | `rescue/sequences.py` |
| what stands in a gap of a salvaged log | `rescue/bridge.py` |
| which entries of a DLedger log belong together, and how many are lost | `rescue/ledger_chain.py` |
| what a command takes, and its help page | `cli/verbs/`; values that the code behind it shares: `choices.py` |
| what a command does with its stores, and its exit status | `cli/session.py`, `cli/__init__.py` |
| what a page says first; what it counts while `verify` reads | `page/story.py`, `page/sums.py` |
| many stores side by side; a row for each | `fleet/run.py`, `fleet/summary.py`; the screen: `cli/fleet.py` |
| columns, labels, folded lines of a screen | `cli/terminal.py`, `text.py`; times: `times.py` |
| message traces: bodies; rows; those of one message | `codec/traces.py`; `find/traces.py`; `find/life_traces.py` |
| what is longer than the terminal; the answer below it | `cli/pager.py` |
| what a query engine's filters let a reader skip | `tables/hints.py`; of DuckDB: `sql/pushed.py` |
| who opens and plans a store of many | `export/apart.py`, `export/shared.py`; loads: `spark/planning.py` |
| what is asked of object storage, and what is kept | `system/remote.py`, `system/read_ahead.py` |
| loops that are compiled; what is written in C | `loops/__init__.py`; `loops/loads.h` |
| how loops are compiled, and get into a wheel | `install/compile_loops.py`; `install/backend.py` |

## Words

| word | meaning |
|---|---|
| unit | one entry of a consume queue: physical offset, size, tags code |
| filler | a unit that stands for no message: what brokers write before the first offset of a queue, or zeros |
| split | a byte range of one segment: what one worker takes at a time |
| window | the bytes of a segment that are in memory at a time |
| run | consecutive records of one window, as columns |
| gap | bytes between records, with what they are: zeros, a segment's end, damage |
| stale | of a record: behind the log's end: cut off earlier, and not overwritten |
| witness | a file, name or counter from which follows that something else existed |
| lead, leads to | a unit or index entry leads to a record if what it says of it holds |
| way | one way to find a message (`find`), or to start a broker (`forecast`) |
| walk | what one release does from load to the first message, step by step |
| era | releases that start in the same way |
| part | of an export: the rows that one Parquet file gets |
| remark | a line on stderr about the store that is read, no finding |

## Where to add

- A finding: a row in `rmqinspect/verify/codes.toml`; the check in the module of its file kind in
  `rmqinspect/verify/`; a store that shows it and a near miss in `tests/verify/test_verify.py`; then
  `python -m docs.build.findings_page > docs/findings.md`.
- A table: a module in `rmqinspect/tables/`, a row in its `__init__.py`, its words in
  `docs/build/tables_page.py`. `decode`, `export` and Spark then have it.
- A broker version: `RELEASES` in `rmqinspect/choices.py`, its clues in `rmqinspect/broker/version_estimate.py`; what
  its start does differently in `rmqinspect/broker/start_rules.py`, then `python -m docs.build.eras_page >
  docs/eras.md`; other differences in `rmqinspect/verify/codes.toml` and `rmqinspect/explain/log_lines.toml`; changed
  layouts in `schemas/`; stores that it wrote in `tests/data/`.
- A command: its options and its help in a module of `rmqinspect/cli/verbs/`, which imports no reader of evidence; what
  it does as `run` in one of the same name in `rmqinspect/cli/`; a row in `VERBS` of its `__init__.py`, a row in
  README.md, a transcript in `tests/golden/`. It goes from store to store in a `Session`: `rmqinspect/cli/session.py`.
- An option: a field made with `option`, in `rmqinspect/cli/options.py` if several commands have it; its name in a group
  of `rmqinspect/cli/help_page.py`.
- An output format: a class in `rmqinspect/output/`.
- A folder, an import between folders, a library: `docs/build/floors.py`, then this page.
"""


def page() -> str:
    """Return the page in Markdown."""
    folders = ["| floor | folder | holds | imports |", "|---|---|---|---|"]
    for folder in reversed((*FLOORS, *DOORS)):
        floor = "door" if folder in DOORS else folder.floor
        folders.append(f"| {floor} | `{folder.name}` | {folder.holds} | {folder.imports.replace(' ', ', ')} |")
    folders += [f"| ground | `{name}` | {holds} |  |" for name, holds in GROUND.items()]
    picture = ["```text", *_picture(), "```"]
    return "\n".join([_HEAD, *picture, "", *folders, "", _REST])


def _picture() -> Iterator[str]:
    rows = {floor: _cells(group) for floor, group in groupby(reversed(FLOORS), key=lambda folder: folder.floor)}
    width = max(map(len, rows.values()))
    border = f"   +{'-' * (width + 1)}+"
    for floor, cells in rows.items():
        yield border
        yield f"{floor:2} | {cells:{width}}|"
    yield border
    yield f"ground, for all floors: {', '.join((*GROUND, *sorted(LEAVES)))}"


def _cells(folders: Iterator[Folder]) -> str:
    return "".join(f"{folder.name:{_CELL}}" for folder in sorted(folders, key=lambda folder: folder.name))


if __name__ == "__main__":
    print(page(), end="")
