"""What kernels call, as machine code that numba would not make of the Python source: a few instructions of LLVM each.

Each `make_...` returns the compiled twin of the function of that name in `codec.kernels`, whose source says what it
does.
"""

import sys
from typing import Any

# numba counts references to arrays by default: 20 ns in every call of an inlined function, more than most of them do.
OPTIONS = {"nogil": True, "_nrt": False}

BLOCK = 32  # bytes that `separators_at` and `find_bytes` compare at once
_COPIED = 16  # bytes that processors copy at once


def make_load(numba: Any, bits: int, *, signed: bool) -> Any:
    """Return a compiled function that loads a big-endian number of an array of bytes."""
    from llvmlite import ir

    number, word = ir.IntType(bits), ir.IntType(64)

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def load(_: Any, raw: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), number.as_pointer())
            value = builder.load(place, align=1)
            if sys.byteorder == "little":
                value = builder.bswap(value)
            if bits == 64:
                return value
            return builder.sext(value, word) if signed else builder.zext(value, word)

        return numba.int64(raw, numba.int64), generate

    @numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
    def number_at(raw: Any, at: int) -> Any:
        return load(raw, at)

    return number_at


def make_separators_at(numba: Any) -> Any:
    """Return `separators_at` as a compiled function that compares all bytes at once."""
    from llvmlite import ir

    word, block = ir.IntType(64), ir.VectorType(ir.IntType(8), BLOCK)

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def separators_in_block(_: Any, raw: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), block.as_pointer())
            one, two = (ir.Constant(block, [value] * BLOCK) for value in (1, 2))
            # 1 or 2, less one, is 0 or 1.
            found = builder.icmp_unsigned("<", builder.sub(builder.load(place, align=1), one), two)
            return builder.zext(builder.bitcast(found, ir.IntType(BLOCK)), word)

        return numba.int64(raw, numba.int64), generate

    @numba.njit(inline="always", **OPTIONS)  # type: ignore[untyped-decorator]
    def separators_at(raw: Any, at: int) -> Any:
        if at + BLOCK <= len(raw):
            return separators_in_block(raw, at)
        bits = 0
        for place in range(at, len(raw)):
            if raw[place] == 1 or raw[place] == 2:
                bits |= 1 << (place - at)
        return bits

    return separators_at


def make_lowest_bit(numba: Any) -> Any:
    """Return `lowest_bit` as a compiled function of one instruction."""
    from llvmlite import ir

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def trailing_zeros(_: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], ir.IntType(1)(0))

        return numba.int64(numba.int64), generate

    @numba.njit(inline="always", **OPTIONS)  # type: ignore[untyped-decorator]
    def lowest_bit(bits: int) -> Any:
        return trailing_zeros(bits)

    return lowest_bit


def make_prefetch(numba: Any) -> Any:
    """Return `prefetch` as a compiled function: one instruction."""
    from llvmlite import ir

    flag = ir.IntType(32)
    to_write, keep, data = flag(1), flag(3), flag(1)  # of LLVM's instruction

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def fetch(_: Any, numbers: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
            function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
            builder.call(function, [place, to_write, keep, data])
            return context.get_dummy_value()

        return numba.none(numbers, numba.int64), generate

    @numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
    def prefetch(numbers: Any, at: int) -> None:
        fetch(numbers, at)

    return prefetch


def make_crc32_of(numba: Any) -> Any:
    """Return `crc32_of` as a compiled function: a call of the C function at an address."""
    from llvmlite import ir

    word = ir.IntType(64)

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def call(_: Any, address: Any, start: Any, size: Any) -> Any:
        # Both libraries' functions take and return 32 bits in places, in registers of 64: only the low ones count.
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, start, size = arguments
            function = builder.inttoptr(address, ir.FunctionType(word, [word] * 3).as_pointer())
            return builder.and_(builder.call(function, [word(0), start, size]), word(0xFFFFFFFF))

        return numba.int64(numba.int64, numba.int64, numba.int64), generate

    @numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
    def crc32_of(address: int, raw: Any, start: int, size: int) -> Any:
        return call(address, raw.ctypes.data + start, size)

    return crc32_of


def make_copy_bytes(numba: Any) -> Any:
    """Return `copy_bytes` as a compiled function: numba's own loop takes five times as long."""
    from llvmlite import ir

    byte, word = ir.IntType(8), ir.IntType(64)

    def copier(size: int | None) -> Any:
        """Return a function that copies `size` bytes from address to address; None: as many as it is told."""

        @numba.extending.intrinsic  # type: ignore[untyped-decorator]
        def copy(_: Any, out: Any, start: Any, length: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                *addresses, length = arguments
                places = [builder.inttoptr(address, byte.as_pointer()) for address in addresses]
                kinds = [place.type for place in places] + [word]
                function = builder.module.declare_intrinsic("llvm.memcpy", kinds)
                builder.call(function, [*places, length if size is None else word(size), ir.IntType(1)(0)])
                return context.get_dummy_value()

            return numba.void(numba.int64, numba.int64, numba.int64), generate

        return copy

    copy_many, copy_block = copier(None), copier(_COPIED)

    @numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
    def copy_bytes(raw: Any, start: int, end: int, out: Any, at: int) -> None:
        size = end - start
        if size > 0:
            raw[start], raw[end - 1], out[at], out[at + size - 1]  # checks the bounds, where numba is told to
        to, begin = out.ctypes.data + at, raw.ctypes.data + start
        if size <= 2 * _COPIED and start + 2 * _COPIED <= len(raw) and at + 2 * _COPIED <= len(out):
            copy_block(to, begin, 0)
            copy_block(to + _COPIED, begin + _COPIED, 0)
        else:
            copy_many(to, begin, size)

    return copy_bytes


def make_find_bytes(numba: Any) -> Any:
    """Return `find_bytes` as a compiled function.

    It compares the first and the last byte of the text with a block of places at once, and the rest where both agree:

        text               t ....... l
        block at     |? ? ? t ? ? ? ?|          32 places where it may begin
        block behind         |? ? ? l ? ? ? ?|  the same places, moved by its size less one
    """
    from llvmlite import ir

    word, block = ir.IntType(64), ir.VectorType(ir.IntType(8), BLOCK)
    lowest_bit = make_lowest_bit(numba)

    @numba.extending.intrinsic  # type: ignore[untyped-decorator]
    def places_in_block(_: Any, raw: Any, at: Any, distance: Any, first: Any, last: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            _, at, distance, *bytes_ = arguments
            found = None
            for place, byte in zip((at, builder.add(at, distance)), bytes_, strict=True):
                loaded = builder.load(builder.bitcast(builder.gep(array.data, [place]), block.as_pointer()), align=1)
                one = builder.insert_element(
                    ir.Constant(block, ir.Undefined), builder.trunc(byte, ir.IntType(8)), ir.IntType(32)(0)
                )
                everywhere = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
                same = builder.icmp_unsigned("==", loaded, builder.shuffle_vector(one, one, everywhere))
                found = same if found is None else builder.and_(found, same)
            return builder.zext(builder.bitcast(found, ir.IntType(BLOCK)), word)

        return numba.int64(raw, *[numba.int64] * 4), generate

    @numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
    def find_bytes(raw: Any, start: int, end: int, texts: Any, first: int, beyond: int) -> Any:
        distance = beyond - first - 1
        if distance < 0 or end - start <= distance:
            return start if distance < 0 else -1
        raw[start], raw[end - 1], texts[first], texts[beyond - 1]  # checks the bounds, where numba is told to
        head, tail, at = numba.int64(texts[first]), numba.int64(texts[beyond - 1]), start
        while at + distance < end:
            if at + distance + BLOCK <= len(raw):
                bits = places_in_block(raw, at, distance, head, tail)
            else:
                bits = 0
                for place in range(at, end - distance):
                    if raw[place] == head and raw[place + distance] == tail:
                        bits |= 1 << (place - at)
            while bits != 0:
                place = at + lowest_bit(bits)
                bits &= bits - 1
                if place + distance >= end:
                    return -1
                same = 1
                while same < distance and raw[place + same] == texts[first + same]:
                    same += 1
                if same >= distance:
                    return place
            at += BLOCK
        return -1

    return find_bytes
