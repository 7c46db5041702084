# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_dledger
  title: DLedger log
  license: Apache-2.0
  endian: be
doc: 'Entries that each wrap one record of the commit log; the records'' own physical offsets count the heads in
  front of them. The two integers of the blank stand the other way round than in the commit log.


  Files: dledger-NAME/data/*. Source: DLedgerEntryCoder, DLedgerMmapFileStore.

  '
seq:
- id: entries
  type: entry
  if: _io.size >= 8
  repeat: until
  repeat-until: not _.is_ledger or _io.size - _io.pos < 8
  doc: 'The last is the blank that ends the file, or empty: nothing was written there yet, or nothing readable.'
types:
  entry:
    seq:
    - id: ledger
      type: ledger_entry
      if: is_ledger
    - id: blank
      type: entry_blank
      if: is_blank
    instances:
      magic_ahead:
        pos: _io.pos
        type: s4
      is_ledger:
        value: magic_ahead == 1 or magic_ahead == 2 or magic_ahead == 3
      is_blank:
        value: magic_ahead == -1
  ledger_entry:
    seq:
    - id: head
      type: entry_head
    - id: body
      size: head.body_size
      type:
        switch-on: head.magic
        cases:
          1: message
      doc: 'Of an entry of another kind: bytes.'
  entry_head:
    seq:
    - id: magic
      type: s4
      doc: 1 entry, 2 no-op, 3 configuration change; -1 marks the end of the file
    - id: size
      type: s4
      doc: size of this head and the body
    - id: index
      type: s8
      doc: number of the entry, counted from 0 without gaps
    - id: term
      type: s8
      doc: number of the leader's term; never decreases
    - id: position
      -orig-id: pos
      type: s8
      doc: physical offset of this entry; its record begins 48 bytes later
    - id: channel
      type: s4
      doc: '0'
    - id: chain_crc
      -orig-id: chainCrc
      type: s4
      doc: '0: the library does not compute it'
    - id: body_crc
      -orig-id: bodyCrc
      type: s4
      doc: '0: the library does not compute it; the record inside has its own'
    - id: body_size
      -orig-id: bodySize
      type: s4
      doc: length of the body, which is one whole record
  entry_blank:
    seq:
    - id: magic
      type: s4
      doc: '-1'
    - id: total_size
      type: s4
      doc: all bytes left, these 8 included
  message:
    seq:
    - id: total_size
      -orig-id: TOTALSIZE
      type: s4
      doc: size of the whole record, this field included; the next record begins after it
    - id: magic
      -orig-id: MAGICCODE
      type: s4
      doc: marks the start of a record and its version; a broker that finds another value here truncates the log
    - id: body_crc
      -orig-id: BODYCRC
      type: s4
      doc: CRC-32 of the body as stored (compressed, if it is), without its top bit; 0 and not checked if there
        is no body. Head, topic and properties have no checksum unless the property __CRC32# exists
    - id: queue_id
      -orig-id: QUEUEID
      type: s4
      doc: queue number in the stored topic; for a delayed message its level minus 1
    - id: flag
      -orig-id: FLAG
      type: s4
      doc: the user's own flag; not interpreted by brokers
    - id: queue_offset
      -orig-id: QUEUEOFFSET
      type: s8
      doc: number of the message in its queue, assigned under a lock; 0 in prepared and rollback records, which
        have no queue unit. If it differs from the position of the queue unit, the position counts
    - id: physical_offset
      -orig-id: PHYSICALOFFSET
      type: s8
      doc: 'offset of the record''s first byte in the log: base offset of the segment (its name) plus position.
        Brokers do not compare it with the real offset, but queue units and index entries are made from it'
    - id: sys_flag
      -orig-id: SYSFLAG
      type: s4
      doc: bits about the body, the transaction and the format of the two hosts
    - id: born_timestamp
      -orig-id: BORNTIMESTAMP
      type: s8
      doc: ms on the producer's clock, when it sent the message
    - id: born_host
      -orig-id: BORNHOST
      type:
        switch-on: (sys_flag & 16) != 0
        cases:
          'true': host_v6
          'false': host_v4
      doc: the producer's address (4 bytes, 16 with BORNHOST_V6) and port (4 bytes)
    - id: store_timestamp
      -orig-id: STORETIMESTAMP
      type: s8
      doc: 'ms on the broker''s clock, taken under the append lock: never runs backwards unless the clock does'
    - id: store_host
      -orig-id: STOREHOST
      type:
        switch-on: (sys_flag & 32) != 0
        cases:
          'true': host_v6
          'false': host_v4
      doc: address and port of the broker that took the message (16 bytes of address with STOREHOSTADDRESS_V6);
        on a slave still the master's. Together with the physical offset it makes the offset msg id
    - id: reconsume_times
      -orig-id: RECONSUMETIMES
      type: s4
      doc: how often consumers sent the message back
    - id: prepared_transaction_offset
      -orig-id: PREPAREDTRANSACTIONOFFSET
      type: s8
      doc: in a commit record the physical offset of its half message, else 0; if the committed message has a delay,
        the delivered copy has 0
    - id: body_size
      -orig-id: BODYLEN
      type: s4
      doc: length of the body as stored; 0 or less means no body
    - id: body
      -orig-id: BODY
      size: 'body_size > 0 ? body_size : 0'
      doc: as the client sent it; compressed if COMPRESSED is set
    - id: topic_size
      -orig-id: TOPICLEN
      type:
        switch-on: magic == -626843477
        cases:
          'true': s2
          'false': s1
      doc: length of the topic in bytes; one byte in V1 records, two in V2
    - id: topic
      -orig-id: TOPIC
      size: topic_size
      doc: where the message is stored; delayed, timer, half and retried messages are stored in the broker's own
        topics and keep their real topic in a property
    - id: properties_size
      -orig-id: PROPERTIESLEN
      type: s2
      doc: length of the properties in bytes, at most 32 767
    - id: properties
      -orig-id: PROPERTIES
      size: 'properties_size > 0 ? properties_size : 0'
      doc: name 01 value 02 name 01 value 02 …, in UTF-8; if a name occurs twice, brokers take the last value. Ends
        in 02 if written by 4.9.0 and earlier or 5.2.0 and later, but not by the versions between
    instances:
      compressed:
        value: (sys_flag & 1) != 0
      multi_tags:
        value: (sys_flag & 2) != 0
      transaction_prepared:
        value: (sys_flag & 4) != 0
      transaction_commit:
        value: (sys_flag & 8) != 0
      bornhost_v6:
        value: (sys_flag & 16) != 0
      storehostaddress_v6:
        value: (sys_flag & 32) != 0
      need_unwrap:
        value: (sys_flag & 64) != 0
      inner_batch:
        value: (sys_flag & 128) != 0
      compression_bit_0:
        value: (sys_flag & 256) != 0
      compression_bit_1:
        value: (sys_flag & 512) != 0
      compression_bit_2:
        value: (sys_flag & 1024) != 0
  host_v4:
    seq:
    - id: address
      size: 4
    - id: port
      type: s4
      doc: an int, though 16 bits would do
  host_v6:
    seq:
    - id: address
      size: 16
    - id: port
      type: s4
