# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_consumequeue
  title: RocketMQ consume queue
  license: Apache-2.0
  endian: be
doc: 'The n-th unit of a queue is its message n: a file''s name is the position of its first byte in the queue.


  Files: consumequeue/TOPIC/QUEUE/*. Source: ConsumeQueue.

  '
seq:
- id: units
  type: queue_unit
  repeat: expr
  repeat-expr: _io.size / 20
types:
  queue_unit:
    seq:
    - id: physical_offset
      -orig-id: offset
      type: s8
      doc: offset of the record in the log
    - id: size
      type: s4
      doc: the record's total size; 0 in an unused unit, 2147483647 in filler before a queue's first message
    - id: tags_code
      -orig-id: tagsCode
      type: s8
      doc: hash of the TAGS, by which the broker filters; in SCHEDULE_TOPIC_XXXX the delivery time in ms; with ext
        files an address in them
