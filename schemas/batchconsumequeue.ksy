# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_batchconsumequeue
  title: RocketMQ batch consume queue
  license: Apache-2.0
  endian: be
doc: 'One unit for each record, which may hold several messages.


  Files: batchconsumequeue/TOPIC/QUEUE/*, and the queues of compaction topics. Source: BatchConsumeQueue.

  '
seq:
- id: units
  type: batch_unit
  repeat: expr
  repeat-expr: _io.size / 46
types:
  batch_unit:
    seq:
    - id: physical_offset
      -orig-id: offset
      type: s8
      doc: offset of the record in the log; -1 marks the end of a full file of a compaction queue
    - id: size
      type: s4
      doc: the record's total size
    - id: tags_code
      -orig-id: tagsCode
      type: s8
      doc: hash of the TAGS; 0 for inner batches
    - id: store_timestamp
      -orig-id: storeTimestamp
      type: s8
      doc: the record's store timestamp, ms
    - id: queue_offset
      -orig-id: msgBaseOffset
      type: s8
      doc: queue offset of the first message
    - id: message_count
      -orig-id: batchSize
      type: s2
      doc: number of messages in the record
    - id: compacted_offset
      -orig-id: compactedOffset
      type: s4
      doc: '-1: none'
    - id: reserved
      type: s4
      doc: '0'
