# The types of loops/arrays.py, for C. All integers of a loop have 64 bits; a name bound to anything narrower would wrap.

ctypedef long long i64

ctypedef const unsigned char[::1] Bytes
ctypedef const i64[::1] Ints
ctypedef const int[::1] Int32s
ctypedef unsigned char[::1] BytesOut
ctypedef i64[::1] IntsOut
ctypedef int[::1] Int32sOut
ctypedef const i64[:, ::1] Table
ctypedef i64[:, ::1] TableOut
ctypedef const int[:, ::1] Int32Table
ctypedef unsigned char[:, ::1] ByteTableOut
ctypedef int[:, ::1] Int32TableOut
