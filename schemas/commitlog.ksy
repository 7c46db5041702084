# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_commitlog
  title: RocketMQ commit log
  license: Apache-2.0
  endian: be
doc: 'Records one after the other, each of the length that it says. The length of the topic has one byte in records
  of the first version, and two in those of the second (5.1.0): magic tells which. A host has 4 or 16 bytes of address,
  told by two bits of sys_flag. A blank record fills what is left of a file; a file that is not full ends in zeros.


  Files: commitlog/*. Source: CommitLog.DefaultAppendMessageCallback#doAppend, MessageExtEncoder, CommitLog#checkMessageAndReturnSize.

  '
seq:
- id: entries
  type: entry
  if: _io.size >= 8
  repeat: until
  repeat-until: not _.is_record or _io.size - _io.pos < 8
  doc: 'The last is the blank that ends the file, or empty: nothing was written there yet, or nothing readable.'
types:
  entry:
    seq:
    - id: record
      type: message
      if: is_record
    - id: blank
      type: blank
      if: is_blank
    instances:
      magic_ahead:
        pos: _io.pos + 4
        type: s4
      is_record:
        value: magic_ahead == -626843481 or magic_ahead == -626843477
      is_blank:
        value: magic_ahead == -875286124
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
  blank:
    seq:
    - id: total_size
      -orig-id: TOTALSIZE
      type: s4
      doc: number of bytes left in the file, these 8 included; 5.3.2 and later refuse a larger number, earlier versions
        do not check it
    - id: magic
      -orig-id: MAGICCODE
      type: s4
      doc: 0xcbd43194; the bytes after it are undefined
  batch_item:
    seq:
    - id: total_size
      type: s4
      doc: this field included
    - id: magic
      type: s4
      doc: '0'
    - id: body_crc
      type: s4
      doc: '0'
    - id: flag
      type: s4
      doc: the user's, not interpreted
    - id: body_size
      type: s4
    - id: body
      size: 'body_size > 0 ? body_size : 0'
    - id: properties_size
      type: s2
    - id: properties
      size: 'properties_size > 0 ? properties_size : 0'
