# Written by `python -m docs.build.kaitai` from the layouts in this folder. Do not edit.
meta:
  id: rocketmq_message_id
  title: Message ids of RocketMQ
  license: Apache-2.0
  endian: be
doc: 'Which kind an id is, its length and its first bytes tell: see rmqinspect id. The numbers in clients'' ids
  are unsigned.


  Files: the bytes behind the hex digits of an id. Source: MessageDecoder#createMessageId, MessageClientIDSetter;
  MessageIdCodec of rocketmq-clients.

  '
types:
  offset_id_v4:
    seq:
    - id: address
      size: 4
    - id: port
      type: s4
      doc: an int, though 16 bits would do
    - id: physical_offset
      type: s8
  offset_id_v6:
    seq:
    - id: address
      size: 16
    - id: port
      type: s4
    - id: physical_offset
      type: s8
  client_id_v4:
    seq:
    - id: address
      size: 4
    - id: pid
      type: u2
      doc: its low 16 bits
    - id: loader_hash
      type: u4
      doc: 'of the class loader: constant in a process'
    - id: time_in_month
      type: u4
      doc: ms since the month began in the client's zone
    - id: counter
      type: u2
      doc: counts up by one in a process, from 0
  client_id_v6:
    seq:
    - id: address
      size: 16
    - id: pid
      type: u2
      doc: its low 16 bits
    - id: loader_hash
      type: u4
      doc: 'of the class loader: constant in a process'
    - id: time_in_month
      type: u4
      doc: ms since the month began in the client's zone
    - id: counter
      type: u2
      doc: counts up by one in a process, from 0
  grpc_client_id:
    seq:
    - id: version
      type: u1
      doc: '1'
    - id: mac
      size: 6
    - id: pid
      type: u2
      doc: its low 16 bits
    - id: seconds
      type: u4
      doc: since 2021-01-01T00:00:00+00:00
    - id: sequence
      type: u4
