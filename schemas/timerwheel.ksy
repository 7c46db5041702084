# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_timerwheel
  title: RocketMQ timer wheel
  license: Apache-2.0
  endian: be
doc: '1,209,600 slots, one for each second of two weeks with the default of timerPrecisionMs. A slot of zeros is
  empty.


  Files: timerwheel (5.0.0). Source: Slot, TimerWheel.

  '
seq:
- id: slots
  type: wheel_slot
  repeat: expr
  repeat-expr: _io.size / 32
types:
  wheel_slot:
    seq:
    - id: time
      type: s8
      doc: 'due time / precision; with 1000 ms: seconds since 1970'
    - id: first
      type: s8
      doc: timer log offset of the slot's oldest unit
    - id: last
      type: s8
      doc: and of its newest, from which `previous` leads back
    - id: message_count
      type: s4
      doc: 'a hint: deletions count -1, a recovery does not count'
    - id: magic
      type: s4
      doc: '0'
