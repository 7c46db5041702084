# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_checkpoint
  title: RocketMQ checkpoint
  license: Apache-2.0
  endian: be
doc: 'The first bytes of a page of 4,096; the rest is zero. A field that a release does not know is zero, too.


  Files: checkpoint. Source: StoreCheckpoint.

  '
seq:
- id: fields
  type: checkpoint
types:
  checkpoint:
    seq:
    - id: physic_msg_timestamp
      -orig-id: physicMsgTimestamp
      type: s8
      doc: store timestamp of the newest record known to be flushed to the log, ms. The lower of this and logicsMsgTimestamp,
        minus 3 s, decides where startup after an unclean shutdown begins its scan
    - id: logics_msg_timestamp
      -orig-id: logicsMsgTimestamp
      type: s8
      doc: store timestamp of the newest record in the consume queues, ms
    - id: index_msg_timestamp
      -orig-id: indexMsgTimestamp
      type: s8
      doc: end time of the newest index file that was full and flushed, ms; 0 until one was full. After an unclean
        shutdown all index files that end later are deleted
    - id: master_flushed_offset
      -orig-id: masterFlushedOffset
      type: s8
      doc: flushed offset of the master
    - id: confirm_phy_offset
      -orig-id: confirmPhyOffset
      type: s8
      doc: records are confirmed up to here; without controller mode, after a recovery, the start (not the end)
        of the last valid record
    - id: logics_physical_offset
      -orig-id: logicsPhysicalOffset
      type: s8
      doc: 'start of the last record that was in a queue file when the last complete flush of the queues began;
        0: never written'
