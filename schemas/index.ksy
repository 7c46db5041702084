# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_index
  title: RocketMQ key index
  license: Apache-2.0
  endian: be
doc: 'A header, hash slots, entries. How many slots and entries there are is not written in the file: they are settings,
  by default 5,000,000 slots (maxHashSlotNum) and 20,000,000 entries (maxIndexNum). Entry 0 is never used.


  Files: index/*. Source: IndexHeader, IndexFile.

  '
params:
- id: num_slots
  type: u4
  doc: maxHashSlotNum of the broker
- id: num_entries
  type: u4
  doc: maxIndexNum of the broker
seq:
- id: header
  type: index_header
- id: slots
  type: index_slot
  repeat: expr
  repeat-expr: num_slots
- id: entries
  type: index_entry
  repeat: expr
  repeat-expr: num_entries
types:
  index_header:
    seq:
    - id: begin_timestamp
      -orig-id: beginTimestamp
      type: s8
      doc: store timestamp of the first entry, ms; entries count seconds from it
    - id: end_timestamp
      -orig-id: endTimestamp
      type: s8
      doc: store timestamp of the last entry, ms. After an unclean shutdown startup deletes the file if this is
        newer than the checkpoint's indexMsgTimestamp
    - id: begin_physical_offset
      -orig-id: beginPhyOffset
      type: s8
      doc: physical offset of the first entry's record
    - id: end_physical_offset
      -orig-id: endPhyOffset
      type: s8
      doc: physical offset of the last entry's record; records before it are no longer indexed
    - id: hash_slot_count
      -orig-id: hashSlotCount
      type: s4
      doc: number of used slots; up to 4.7.0 number of entries
    - id: index_count
      -orig-id: indexCount
      type: s4
      doc: number of the next free entry; entries are numbered from 1, so the last one is indexCount minus 1
  index_slot:
    seq:
    - id: entry
      -orig-id: slotValue
      type: s4
      doc: number of the newest entry in this slot, 0 for none
  index_entry:
    seq:
    - id: key_hash
      -orig-id: keyHash
      type: s4
      doc: hash of topic#key, never negative; the slot is the hash modulo the number of slots
    - id: physical_offset
      -orig-id: phyOffset
      type: s8
      doc: offset of the record in the log
    - id: time_diff
      -orig-id: timeDiff
      type: s4
      doc: whole seconds from the file's beginTimestamp to the record's store timestamp; wrong in the first entry
        of a file that follows a full one
    - id: previous
      -orig-id: prevIndex
      type: s4
      doc: number of the next older entry in the same slot, 0 at the end of the chain
