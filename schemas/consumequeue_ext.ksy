# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_consumequeue_ext
  title: RocketMQ consume queue, ext units
  license: Apache-2.0
  endian: be
doc: 'Units of different length. A size of -1 ends the file, 0 is not written yet.


  Files: consumequeue_ext/TOPIC/QUEUE/*. Source: ConsumeQueueExt.

  '
seq:
- id: entries
  type: entry
  if: _io.size >= 2
  repeat: until
  repeat-until: not _.is_unit or _io.size - _io.pos < 2
  doc: 'The last is the blank that ends the file, or empty: nothing was written there yet, or nothing readable.'
types:
  entry:
    seq:
    - id: unit
      type: ext_unit
      if: is_unit
    instances:
      size_ahead:
        pos: _io.pos
        type: s2
      is_unit:
        value: size_ahead > 0
  ext_unit:
    seq:
    - id: size
      type: s2
      doc: 'size of the whole ext unit: 20 bytes and the bitmap; -1 marks the end of a file'
    - id: tags_code
      -orig-id: tagsCode
      type: s8
      doc: 'what the queue unit would otherwise hold: hash of the TAGS, or delivery time'
    - id: store_timestamp
      -orig-id: msgStoreTime
      type: s8
      doc: the record's store timestamp, ms
    - id: bitmap_size
      -orig-id: bitMapSize
      type: s2
      doc: length of the filter bitmap that follows, 0 or (by default) 14 bytes
    - id: bitmap
      size: bitmap_size
