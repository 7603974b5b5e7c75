"""HLSCNN convolution: what ConvTrigger computes, as whole arrays where its regions are apart, else in device order."""

from __future__ import annotations

from rewrite_compiler.ila import Ila, Match, Wait
from rewrite_compiler.lang import (
    Expr,
    Leaf,
    Operand,
    Step,
    array,
    assign,
    fold,
    let,
    lift,
    loop,
    select,
    seq,
    signed,
    together,
    update,
    when,
)

from .config import CONV_TRIGGER, address_of, is_register
from .geometry import Geometry
from .limits import limits
from .memories import LANES, VECTOR, byte, word
from .numerics import accumulated, finished, rounded_sum
from .revisions import Revision

INT16 = (-(1 << 15), (1 << 15) - 1)


def declare_convolution(m: Ila, p: Revision) -> None:
    """Declare the trigger of the convolution and what it waits for."""
    m.interrupt = m.register("conv_done", 1, doc="A convolution has ended; waiting for it clears it.")
    running = m.register("conv_valid", 1, doc="A convolution runs; after its trigger only where it cannot end.")
    m.waits.append(Wait("Convolution", ~running[()], "does not end: a stride in ConvKernelSize is 0"))
    m.waits.append(Wait("Convolution", m.s.conv_done[()], "was not started (accel_conv_trigger)"))

    def accel_conv_trigger() -> Step:
        """Run the configured convolution to its end; the data of the command is ignored.

        An output takes its taps in the order channel block, kernel row, kernel column: each adds a sum of eight lanes,
        rounded once, and saturates once.
        """
        g = Geometry(m, p)
        run = when(g.has_work, when(g.is_apart, _at_once(m, g), _in_order(m, g)))
        flags = together(assign(m.s.conv_done, g.ends), assign(running, ~g.ends))
        return seq(*limits(m, g), when(g.ends, run), flags)

    m.instruction("accel_conv_trigger", Match(is_register(m, CONV_TRIGGER), address_of(CONV_TRIGGER)))(accel_conv_trigger)


# -- the step of one tap


def _weight(m: Ila, g: Geometry, f: Operand, block: Operand, row: Operand, col: Operand, lane: Operand) -> Expr:
    at = g.weight_address(f, block, row, col, lane)
    return word(m.s.spad0, at) if g.weight_bytes == 2 else signed(byte(m.s.spad0, at), 8)


def _after_tap(m: Ila, g: Geometry, q: Expr, base: Expr, is_last: Expr, ends: Expr) -> Expr:
    """The output after a tap; at its last one bias and ReLU are applied, if they are enabled."""
    s = m.s
    bias = select(s.conv_bias_on[()], s.conv_bias[()], 0)
    plain = accumulated(g.p, q, base)
    end = select(ends, finished(g.p, q, base, bias, s.conv_relu[()]), plain)
    return select(is_last & (s.conv_bias_on[()] | s.conv_relu[()]), end, plain)


def _is_last(g: Geometry, block: Expr, row: Expr, col: Expr) -> Expr:
    return (block == g.blocks - 1) & (row == g.rows.kernel - 1) & (col == g.cols.kernel - 1)


def _byte_of(value: Expr, n: Expr) -> Expr:
    return (value >> 8 * n) % 256


def _lane_byte(g: Geometry, value: Expr, b: Expr) -> Expr:
    """Byte b of an output vector that is not grouped: the value in the last filter's lane, zeros in the others."""
    return select(b // 2 == g.last_lane, _byte_of(value, b % 2), 0)


# -- as whole arrays


def _at_once(m: Ila, g: Geometry) -> Step:
    """All outputs tap by tap. Activations outside of the input are zeros, which change no output."""
    rows, cols = g.rows, g.cols

    def activation(block: Expr, row: Expr, col: Expr, lane: Expr) -> Expr:
        value = word(g.activations, g.act_address(block, row - rows.before, col - cols.before, lane))
        is_whole = (rows.before == 0) & (cols.before == 0) & (rows.padded <= rows.size) & (cols.padded <= cols.size)
        return select(is_whole, value, select(rows.holds(row) & cols.holds(col), value, 0))

    act = array(activation, (g.blocks, rows.padded, cols.padded, LANES))
    wgt = array(lambda *i: _weight(m, g, *i), (g.filters, g.blocks, rows.kernel, cols.kernel, LANES))

    def outputs(x: Leaf, w: Leaf) -> Step:
        result = array(lambda f, i, j: _output(m, g, x, w, f, i, j), (g.filters, rows.count, cols.count))
        return let(result, lambda y: _store(m, g, y), "outputs")

    return let(act, lambda x: let(wgt, lambda w: outputs(x, w), "weights"), "activations")


def _output(m: Ila, g: Geometry, x: Leaf, w: Leaf, f: Expr, i: Expr, j: Expr) -> Expr:
    rows, cols = g.rows, g.cols
    starts = rows.holds(i * rows.stride) & cols.holds(j * cols.stride)  # tap (0, 0) reaches this output
    ends = rows.holds(i * rows.stride + rows.kernel - 1) & cols.holds(j * cols.stride + cols.kernel - 1)
    old = word(m.s.spad1, g.output_address(f, rows.place(i), cols.place(j)))

    def tap(block: Expr, row: Expr, col: Expr, acc: Expr) -> Expr:
        q = rounded_sum(g.p, lambda k: w[f, block, row, col, k], lambda k: x[block, i * rows.stride + row, j * cols.stride + col, k])
        return _after_tap(m, g, q, acc, _is_last(g, block, row, col), ends)

    def kernel_row(block: Expr, row: Expr, start: Expr) -> Expr:
        return fold(cols.kernel, start, lambda col, acc: tap(block, row, col, acc), INT16)

    def channel_block(block: Expr, start: Expr) -> Expr:
        return fold(rows.kernel, start, lambda row, acc: kernel_row(block, row, acc), INT16)

    return fold(g.blocks, select(m.s.conv_accumulate[()] | ~starts, old, 0), channel_block, INT16)


def _store(m: Ila, g: Geometry, y: Leaf) -> Step:
    """Write the outputs: their own lane where outputs are grouped, else whole vectors with zeros in the other lanes."""
    if not g.p.grouped_output:
        return _store_vectors(m, g, y)
    whole, rest = g.filters // LANES, g.filters % LANES
    return seq(when(whole > 0, _store_lanes(m, g, y, lift(0), whole, LANES)), when(rest > 0, _store_lanes(m, g, y, whole, 1, rest)))


def _store_lanes(m: Ila, g: Geometry, y: Leaf, first: Expr, groups: int | Expr, lanes: int | Expr) -> Step:
    rows, cols = g.rows, g.cols

    def element(b: Expr, group: Expr, lane: Expr, i: Expr, j: Expr) -> tuple[Expr, Expr]:
        address = g.output_vector(first + group, rows.place(i), cols.place(j)) + lane * 2 + b
        return address % g.p.spad_bytes, _byte_of(y[(first + group) * LANES + lane, i, j], b)

    return update(m.s.spad1, (2, groups, lanes, rows.count, cols.count), element)


def _store_vectors(m: Ila, g: Geometry, y: Leaf) -> Step:
    rows, cols = g.rows, g.cols

    def element(b: Expr, f: Expr, i: Expr, j: Expr) -> tuple[Expr, Expr]:
        address = g.output_vector(f, rows.place(i), cols.place(j)) + b
        return address % g.p.spad_bytes, _lane_byte(g, y[f, i, j], b)

    return update(m.s.spad1, (VECTOR, g.filters, rows.count, cols.count), element)


# -- in device order


def _in_order(m: Ila, g: Geometry) -> Step:
    """Tap by tap as the device does it: filter, channel block, input row and column, and the kernel positions they meet."""
    rows, cols = g.rows, g.cols

    def pixel(f: Expr, block: Expr, row: Expr, col: Expr) -> Step:
        vector = array(lambda k: word(g.activations, g.act_address(block, row, col, k)), LANES)
        return let(vector, lambda a: taps(f, block, row, col, a), "vector")

    def taps(f: Expr, block: Expr, row: Expr, col: Expr, a: Leaf) -> Step:
        def tap(t: Expr, u: Expr) -> Step:
            return _tap_in_order(m, g, f, block, (row, row % rows.stride + t * rows.stride), (col, col % cols.stride + u * cols.stride), a)

        return loop(rows.taps(row), lambda t: loop(cols.taps(col), lambda u: tap(t, u)))

    def input_row(f: Expr, block: Expr, row: Expr) -> Step:
        return loop(cols.size, lambda col: pixel(f, block, row, col))

    return loop(g.filters, lambda f: loop(g.blocks, lambda b: loop(rows.size, lambda row: input_row(f, b, row))))


def _tap_in_order(m: Ila, g: Geometry, f: Expr, block: Expr, rows: tuple[Expr, Expr], cols: tuple[Expr, Expr], a: Leaf) -> Step:
    """Add one tap, given by input and kernel position of each side, to the output it reaches, if it reaches one."""
    (row, kr), (col, kc) = rows, cols
    i, j = g.rows.number(row, kr), g.cols.number(col, kc)
    o_row, o_col = g.rows.place(i), g.cols.place(j)
    address = g.output_address(f, o_row, o_col)
    is_first = (block == 0) & (kr == 0) & (kc == 0)
    base = select(is_first & ~m.s.conv_accumulate[()], 0, word(m.s.spad1, address))
    q = rounded_sum(g.p, lambda k: _weight(m, g, f, block, kr, kc, k), lambda k: a[k])
    new = array(lambda: _after_tap(m, g, q, base, _is_last(g, block, kr, kc), lift(1)), ())

    def store(y: Leaf) -> Step:
        if g.p.grouped_output:
            return update(m.s.spad1, 2, lambda b: ((address + b) % g.p.spad_bytes, _byte_of(y[()], b)))
        vector = g.output_vector(f, o_row, o_col)
        return update(m.s.spad1, VECTOR, lambda b: ((vector + b) % g.p.spad_bytes, _lane_byte(g, y[()], b)))

    reached = (i >= 0) & (i < g.rows.count) & (j >= 0) & (j < g.cols.count)
    return when(reached, let(new, store, "output"))
