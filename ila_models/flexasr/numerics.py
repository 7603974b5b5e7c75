"""FlexASR arithmetic, bit by bit: AdaptivFloat codes, 20-bit fixed point, the piecewise-linear functions.

Raw integers throughout; F14 means 14 fraction bits. Source: the FlexASR specification, sections 7.1 to 7.6. Functions
of one 20-bit word or of two codes are tables: numeric readings compute them once.
"""

from rewrite_compiler.lang import Expr, Operand, Table, absolute, clamp, clz, lift, maximum, select, signed, switch, wrap

CODE = (0, 255)
WORD20 = (-(1 << 19), (1 << 19) - 1)
ONE = 1 << 14
MAX20 = (1 << 19) - 1

SIGMOID_SLOPE = (155, 130, 92, 58, 34, 19, 10, 6)
SIGMOID_START = (513, 668, 798, 890, 948, 982, 1001, 1012)
TANH_SLOPE = (251, 224, 177, 129, 88, 57, 37, 23, 14, 9, 5, 3, 0, 0, 0, 0)
TANH_START = (1, 252, 476, 653, 783, 871, 928, 965, 988, 1002, 1011, 1016, 0, 0, 0, 0)
INVSQRT_SLOPE = (-331, -279, -240, -210, -185, -165, -148, -134)
INVSQRT_START = (5789, 5458, 5178, 4938, 4728, 4543, 4378, 4229)
EXP_SLOPE = (194, 230, 273, 325)
EXP_START = (1022, 1216, 1446, 1719)


def _integer(c: Expr) -> Expr:
    size = (16 + c[0:4]) << c[4:7]
    return select(c[0:7] == 0, 0, select(c[7], -size, size))


DECODE = Table("adaptivfloat_integer", _integer, CODE)


def decoded(code: Operand) -> Expr:
    """D(c): the value of a code is D · 2^(bias−14)."""
    return DECODE(code)


def fixed(code: Operand, bias: Operand) -> Expr:
    """fx(c, b): the code as a 20-bit word, F14; exact."""
    return clamp(decoded(code) << bias, *WORD20)


def encoded(x: Expr, bias: Operand, fraction: int, width: int) -> Expr:
    """enc(x, b): the code of a signed word of `width` bits with `fraction` fraction bits; halves round toward +∞."""
    size = absolute(x)
    exponent = width - 1 - clz(size, width)
    drop, fill = maximum(exponent - 4, 0), maximum(4 - exponent, 0)
    half = (lift(1) << drop) >> 1
    mantissa = ((size << fill) + select(x < 0, maximum(half - 1, 0), half)) >> drop
    field = exponent + (mantissa == 32) - fraction - bias + 10
    sign = select(x < 0, 128, 0)
    code = select(field > 7, sign + 127, sign + (clamp(field, 0, 7) << 4) + mantissa % 16)
    return select((x == 0) | (field < 0), 0, code)


def _encode_table(bias: int) -> Table:
    return Table(f"encode_bias{bias}", lambda x: encoded(x, bias, 14, 20), WORD20)


ENCODE = tuple(map(_encode_table, range(8)))


def encode(x: Expr, bias: Expr) -> Expr:
    """enc of a 20-bit word, F14, at a bias held in a register."""
    return switch(bias, *(table(x) for table in ENCODE))


def _reduced(name: str, combine: object, fraction: int) -> Table:
    def pair(a: Expr, b: Expr) -> Expr:
        total = combine(_integer(a), _integer(b))  # type: ignore[operator]
        return encoded(total, 0, fraction, 20)

    return Table(name, pair, CODE, CODE)


MAXIMUM = _reduced("reduce_max", maximum, 14)
MEAN = _reduced("reduce_mean", lambda a, b: a + b, 15)
SUM = _reduced("reduce_add", lambda a, b: a + b, 14)


def _sigmoid(x: Expr, position: Expr) -> Expr:
    segment, offset = (position >> 10) % 8, position % 1024
    y = wrap(switch(segment, *SIGMOID_SLOPE) * offset + (switch(segment, *SIGMOID_START) << 10), 20, False)
    y = select(absolute(x) >= 5 * ONE, (1 << 20) - 1, y)
    return select(x < 0, wrap((1 << 20) - y, 20, False), y) >> 6


SIGMOID = {
    "3.2": Table("sigmoid", lambda x: _sigmoid(x, ((absolute(x) * 819) >> 13) % (1 << 14)), WORD20),
    "3.4": Table("sigmoid_34", lambda x: _sigmoid(x, (((absolute(x) >> 4) % (1 << 14)) * 819) >> 9), WORD20),
}


def _tanh(x: Expr) -> Expr:
    position = (absolute(x) >> 2) % (1 << 14)
    segment, offset = position >> 10, position % 1024
    y = switch(segment, *TANH_SLOPE) * offset + (switch(segment, *TANH_START) << 10)
    y = select(absolute(x) >= 3 * ONE, (1 << 20) - 1, y)
    return select(x < 0, -y, y) >> 6


TANH = Table("tanh", _tanh, WORD20)


def _invsqrt(x: Expr) -> Expr:
    unsigned = wrap(x, 20, False)
    zeros = clz(unsigned, 20)
    normal = unsigned << zeros
    exponent = 6 - zeros
    position = ((normal - (1 << 19)) >> 4) % (1 << 15)
    segment, offset = position >> 12, position % 4096
    root = switch(segment, *INVSQRT_SLOPE) * offset + (switch(segment, *INVSQRT_START) << 12)
    root = select(exponent % 2 == 1, wrap((root * 2896) >> 12, 24, False), root)
    return select(unsigned == 0, -1, signed(root >> maximum(10 + exponent // 2, 0), 20))


INVSQRT = Table("invsqrt", _invsqrt, WORD20)


def relu(x: Expr) -> Expr:
    """max(x, 0)."""
    return maximum(x, 0)


def one_minus(x: Expr) -> Expr:
    """1 − x in 20-bit wrapping arithmetic, F14."""
    return signed(ONE - x, 20)


def exponential(x: Expr) -> Expr:
    """exp of a 32-bit word, F20, modulo 2^32; four segments a power of two."""
    power = wrap((x * 23637) >> 14, 33, True)
    integer, part = power >> 20, (power % (1 << 20)) >> 8
    segment, offset = part >> 10, part % 1024
    size = switch(segment, *EXP_SLOPE) * offset + (switch(segment, *EXP_START) << 10)
    grown = wrap(size << clamp(integer, 0, 32), 32, False)
    return select(integer < 0, size >> clamp(-integer, 0, 32), grown)


def quotient(a: Expr, b: Expr) -> Expr:
    """a / b of 32-bit words, F20, on 2 integer and 4 fraction bits of each: the divisor counts modulo 4."""
    top, bottom = (a >> 16) % 64, (b >> 16) % 64
    return select(bottom == 0, 1023, ((top << 8) // maximum(bottom, 1)) % 1024) << 12


# what numerics of the target may share with the model, and the section of the specification that says it
PRIMITIVES = {
    "decoded": "7.1", "fixed": "7.2", "encoded": "7.3", "encode": "7.3", "relu": "7.5", "SIGMOID": "7.5", "TANH": "7.5", "INVSQRT": "7.5",
    "one_minus": "6.3", "exponential": "7.5", "quotient": "6.7", "MAXIMUM": "7.6", "MEAN": "7.6", "SUM": "7.6",
}  # fmt: skip
