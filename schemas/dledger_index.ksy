# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_dledger_index
  title: DLedger index
  license: Apache-2.0
  endian: be
doc: 'The unit of entry n lies at n times its size.


  Files: dledger-NAME/index/*. Source: DLedgerMmapFileStore.

  '
seq:
- id: units
  type: entry_index_unit
  repeat: expr
  repeat-expr: _io.size / 32
types:
  entry_index_unit:
    seq:
    - id: magic
      type: s4
      doc: as in the entry
    - id: position
      -orig-id: pos
      type: s8
      doc: physical offset of the entry
    - id: size
      type: s4
      doc: size of the whole entry
    - id: index
      type: s8
      doc: number of the entry; its unit lies at 32 times this number
    - id: term
      type: s8
      doc: term of the entry
