# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_timercheck
  title: RocketMQ timer checkpoint
  license: Apache-2.0
  endian: be
doc: 'The first bytes of a page; the rest is zero.


  Files: config/timercheck (5.0.0). Source: TimerCheckpoint.

  '
seq:
- id: fields
  type: timer_check
types:
  timer_check:
    seq:
    - id: last_read_timestamp
      type: s8
      doc: 'ms; slots before it have fired. 0: a failed start (5.4.0)'
    - id: last_timer_log_flush_pos
      type: s8
      doc: up to where the timer log was flushed
    - id: last_timer_queue_offset
      type: s8
      doc: next queue offset of rmq_sys_wheel_timer to take
    - id: master_timer_queue_offset
      type: s8
    - id: state_version
      type: s8
      doc: dataVersion
    - id: version_timestamp
      type: s8
      doc: ms
    - id: version_counter
      type: s8
