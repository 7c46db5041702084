# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_timerlog
  title: RocketMQ timer log
  license: Apache-2.0
  endian: be
doc: 'Units of one size; a blank fills what is left of a file.


  Files: timerlog/* (5.0.0). Source: TimerLog.

  '
seq:
- id: entries
  type: entry
  if: _io.size >= 16
  repeat: until
  repeat-until: not _.is_unit or _io.size - _io.pos < 16
  doc: 'The last is the blank that ends the file, or empty: nothing was written there yet, or nothing readable.'
types:
  entry:
    seq:
    - id: unit
      type: timer_unit
      if: is_unit
    - id: blank
      type: timer_blank
      if: is_blank
    instances:
      size_ahead:
        pos: _io.pos
        type: s4
      magic_ahead:
        pos: _io.pos + 12
        type: s4
      is_unit:
        value: size_ahead == 52 and magic_ahead != -875286124
      is_blank:
        value: magic_ahead == -875286124
  timer_unit:
    seq:
    - id: size
      type: s4
      doc: '52'
    - id: previous
      type: s8
      doc: 'timer log offset of the unit before it in its slot; -1: none'
    - id: magic
      type: s4
      doc: 'bits: 1 normal, 2 to be rolled, 4 deletes another'
    - id: enqueue_timestamp
      type: s8
      doc: ms, a multiple of the wheel's precision
    - id: delay
      type: s4
      doc: ms; due at enqueue_timestamp + delay
    - id: physical_offset
      type: s8
      doc: of the record, topic rmq_sys_wheel_timer
    - id: record_size
      type: s4
    - id: real_topic_hash
      type: s4
      doc: String.hashCode of REAL_TOPIC, 0 without
    - id: reserved
      type: s8
  timer_blank:
    seq:
    - id: total_size
      type: s4
      doc: all bytes left, these 16 included
    - id: reserved
      type: s8
    - id: magic
      type: s4
      doc: -875286124, where a unit has its own
