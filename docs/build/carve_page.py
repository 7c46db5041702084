"""`python -m docs.build.carve_page > docs/carve.md` writes the page about records in any bytes."""

from docs.build.tables_page import type_words
from rmqinspect.rescue.carved_rows import SCHEMA, SOUND, STATUSES
from rmqinspect.tables.messages import SCHEMA as MESSAGES

_HEAD = """\
# Records in any bytes

Written by `python -m docs.build.carve_page > docs/carve.md`.

`rmqinspect decode --carve IMAGE…` finds the records of commit logs where no store is left: in the image of a disk or
the disk itself, in the space of deleted files, in a core dump, in a segment with something else in front, in pages out
of order. Records may stand at any byte. Everything is only read; a block device is opened read-only.

```sh
rmqinspect decode --carve disk.img -o found.parquet                      # all there is
rmqinspect decode --carve /dev/sdb1 -t orders --since 2026-11-21 -f jsonl
rmqinspect decode --carve core.1234 -k K95                               # a broker's memory, with its mapped segments
```

All formats, filters, `--columns`, `--redact` and `-n` are those of `decode`. On stderr stands what the records make
together. Exit status 3: some are damaged or cut, `partial` among them; copies and nested records are no damage.

## What counts as a record

A magic code, a size, lengths of body, topic and properties that end exactly where the size says, and a body with its
CRC: then it is `carved`, and no chance wrote it. A body's CRC says nothing about head, topic and properties; from 5.2.0
on a record may have a CRC of its own, and one that is wrong is `record_crc`. Two cases deserve a word of their own:

- A page that ends inside of a record's properties leaves its lengths and its body right. Where the next record of its
  log follows, or zeros, or the image ends, nothing was cut. Elsewhere, where the border of a block of 512 bytes lies in
  topic or properties, the record is `doubtful`: its topic and properties may be other bytes.
- Messages may hold records: a backup that was sent as a message does. A record inside of another whole record is
  `nested`, with the position of the outer one in `within`. It is no message of its own.

| status | damage | meaning |
|---|---|---|
"""

_COLUMNS = """
The other values are those of [`messages`](tables.md#messages): `body_crc` has right lengths and a wrong body.

Of a `partial` record there is what its head says; of a head that is cut, its fields up to `sys_flag`. Its `body` is
what may be its body: up to the next record, 64 KiB at most, and nothing proves where it was cut. With `body_crc_ok`
true it is whole. A record whose head is not there is not found: nothing marks the rest of it.

## Columns

Those of `messages`, and in front of them:

| column | type | meaning |
|---|---|---|
"""

_REST = """
`physical_offset` is where the record stood in its log, as it says itself, and `--offset` and `--id` mean that place.

## Which log they were

Each record has its place in its log, the address of the broker that stored it, and a time. So what is found is put
together again, and told on stderr, one line for each log:

- Records of different store hosts are of different logs, unless one follows the other in the image and in its log: a
  broker whose address has changed, or a replica that became the master.
- Of two different records for one offset of one log, the one that was stored later counts; so does everything that was
  stored before what lies in front of it belong to an older tail of the log: a broker that starts after a crash leaves
  the old tail where it is. An older tail is listed as such.
- What the clock does not decide is not decided: two records of one second for one offset are `ambiguous`, both are
  rows, and the second is a `rival`. A single time that does not fit between those around it is told, and decides
  nothing.

The same bytes found again are a `copy`, whichever image they are in. A record is compared with up to four others for
its offset.

## A store of what was found

```sh
rmqinspect salvage --carve disk.img -o NEW                        # all that the image holds of one log
rmqinspect salvage STORE disk.img --carve -o NEW                  # what the image has and a damaged store lacks
rmqinspect salvage --carve disk.img -o NEW --prefer 10.0.0.5:10911
```

There, folders are stores, and what is no folder is an image. The log that was put together is one more source: what is
missing in it is bridged, queues and index are made anew, and the result is verified. Images with logs of several
brokers need `--prefer NAME`, and only that log is taken; earlier lives of it stay out; where the clock decided nothing,
both records are sources, and `salvage` refuses unless one is preferred. All of it is said in the receipt, and so are
images of no use. The size of a segment is what blank records at the ends of segments say, else that of the broker.conf
given with `--config` or of the store beside it; a log without any gets the default of 1 GiB. Records that are
`doubtful`, or cut, are not taken.

## Limits

- Records of DLedger logs are found, the heads of entries in front of them are not listed. `salvage --carve` refuses
  such a log: give `salvage` its segments, as files of any name ([salvage](salvage.md#dledger-logs)).
- The search reads every byte that is not in a hole, at about the speed of memory; a terabyte of holes takes no time.
- Crafted images take no more time for their size than others: checksums of records that claim the same bytes are paid
  from a credit of eight bytes for each byte searched. What it does not cover is `unchecked`, and counted. Of records in
  records only the outer two levels have bodies.
- Fragments of one record are not joined: where the pages of a file lie apart, records that cross from one to the next
  are `partial`. A file system's own tools know which pages were a file's; carve what they restore.
"""


def page() -> str:
    """Return the page in Markdown."""
    statuses = (f"| `{name}` | {'no' if name in SOUND else 'yes'} | {words} |" for name, words in STATUSES.items())
    own = [field for field in SCHEMA if field.name not in MESSAGES.names]
    columns = (f"| `{field.name}` | `{type_words(field.type)}` | {field.metadata[b'doc'].decode()} |" for field in own)
    return _HEAD + "\n".join(statuses) + "\n" + _COLUMNS + "\n".join(columns) + "\n" + _REST


if __name__ == "__main__":
    print(page(), end="")
