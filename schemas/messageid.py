"""Message ids: the bytes behind the hex text of an offset msg id, a Java client's id, a gRPC client's id.

Unlike everything in the store's files, the parts of a client's id are unsigned.
Source: MessageDecoder#createMessageId, MessageClientIDSetter; MessageIdCodec of rocketmq-clients 5.x.
"""

from construct import Bytes, Int8ub, Int16ub, Int32ub, Int64sb, Struct

from .message import HostV4, HostV6

OffsetIdV4 = Struct(
    *HostV4.subcons,              # 0   the broker's address and port
    "physical_offset" / Int64sb,  # 8
)                                 # 16

OffsetIdV6 = Struct(*HostV6.subcons, "physical_offset" / Int64sb)  # 28

_CLIENT_TAIL = (
    "pid" / Int16ub,            # +0   its low 16 bits
    "loader_hash" / Int32ub,    # +2   of the class loader: constant in a process
    "time_in_month" / Int32ub,  # +6   ms since the month began in the client's zone
    "counter" / Int16ub,        # +10  counts up by one in a process, from 0
)                               # +12

ClientIdV4 = Struct("address" / Bytes(4), *_CLIENT_TAIL)  # 16
ClientIdV6 = Struct("address" / Bytes(16), *_CLIENT_TAIL)  # 28  4.6.0

GrpcClientId = Struct(
    "version" / Int8ub,    # 0   GRPC_VERSION
    "mac" / Bytes(6),      # 1
    "pid" / Int16ub,       # 7   its low 16 bits
    "seconds" / Int32ub,   # 9   since GRPC_EPOCH
    "sequence" / Int32ub,  # 13
)                          # 17

GRPC_VERSION = 1
GRPC_EPOCH = "2021-01-01T00:00:00+00:00"
