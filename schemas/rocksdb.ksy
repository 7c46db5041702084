# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_rocksdb
  title: Keys and values in RocksDB
  license: Apache-2.0
  endian: be
doc: 'A key is what its types say, with names between them: key_head, topic, unit_key_tail. The files themselves
  are those of RocksDB.


  Files: consumequeue_rocksdb (5.2.0), rocksdbstore (5.4.0), config/rdb (5.3.2). Source: RocksDBConsumeQueueTable,
  RocksDBConsumeQueueOffsetTable, TimerRocksDBRecord, TransRocksDBRecord, ConfigHelper.

  '
types:
  key_head:
    seq:
    - id: topic_size
      type: s4
      doc: bytes of the topic
    - id: separator
      type: s1
  unit_key_tail:
    seq:
    - id: separator
      type: s1
    - id: queue_id
      type: s4
    - id: queue_separator
      type: s1
    - id: queue_offset
      type: s8
  unit_value:
    seq:
    - id: physical_offset
      type: s8
    - id: size
      type: s4
    - id: tags_code
      type: s8
    - id: store_timestamp
      type: s8
      doc: ms
  end_key_tail:
    seq:
    - id: separator
      type: s1
    - id: which
      size: 3
      doc: max, min
    - id: which_separator
      type: s1
    - id: queue_id
      type: s4
  end_value:
    seq:
    - id: physical_offset
      type: s8
    - id: queue_offset
      type: s8
      doc: of that message
  checkpoint_value:
    seq:
    - id: physical_offset
      type: s8
  timer_key_head:
    seq:
    - id: deliver_timestamp
      type: s8
      doc: ms; TIMER_OUT_MS
  timer_value:
    seq:
    - id: record_size
      type: s4
    - id: physical_offset
      type: s8
      doc: of the record, topic rmq_sys_wheel_timer
  half_key_head:
    seq:
    - id: physical_offset
      type: s8
      doc: of the half message
  half_value:
    seq:
    - id: check_times
      type: s4
      doc: how often the producer was asked
    - id: record_size
      type: s4
  number_value:
    seq:
    - id: number
      type: s8
  config_key_head:
    seq:
    - id: prefix
      type: u1
      doc: TablePrefix.TABLE
    - id: table
      type: u2
      doc: TableId
    - id: record
      type: u1
      doc: RecordPrefix
  consumer_offset_key:
    seq:
    - id: prefix
      type: u1
      doc: TablePrefix.TABLE
    - id: table
      type: u2
      doc: TableId
    - id: record
      type: u1
      doc: RecordPrefix
    - id: group_size
      type: u2
    - id: group
      size: group_size
    - id: group_separator
      type: s1
    - id: topic_size
      type: u2
    - id: topic
      size: topic_size
    - id: topic_separator
      type: s1
    - id: queue_id
      type: s4
  consumer_offset_value:
    seq:
    - id: queue_offset
      type: s8
      doc: the next to consume
  config_key:
    seq:
    - id: prefix
      type: u1
      doc: TablePrefix.TABLE
    - id: table
      type: u2
      doc: TableId
    - id: record
      type: u1
      doc: RecordPrefix
    - id: name_size
      type: u2
    - id: name
      size: name_size
  config_value_head:
    seq:
    - id: serialization
      type: u1
  config_data_version:
    seq:
    - id: state_version
      type: s8
    - id: timestamp
      type: s8
      doc: ms
    - id: counter
      type: s8
