"""HLSCNN convolution: what ConvTrigger computes, as whole arrays where its regions are apart, else in device order."""

from rewrite_compiler.ila import Bus, Ila, Wait
from rewrite_compiler.lang import Array, Expr, Leaf, Operand, Step, all_of, array, assign, fold, let, loop, select, seq, together, when

from .config import CONV_TRIGGER, register
from .geometry import Geometry
from .limits import limits
from .memories import LANES
from .numerics import Lanes, accumulated, rounded_sum
from .revisions import Revision

Tap = tuple[Expr, Expr, Expr]  # channel block, kernel row, column


def declare_convolution(m: Ila, device: Bus, p: Revision) -> None:
    """Declare the trigger of the convolution and what it waits for."""
    m.interrupt = m.register("conv_done", 1, doc="A convolution has ended; waiting for it clears it.")
    running = m.register("conv_valid", 1, doc="A convolution runs; after its trigger only where it cannot end.")
    m.waits.append(Wait("Convolution", ~running[()], "does not end: a stride in ConvKernelSize is 0"))
    m.waits.append(Wait("Convolution", m.r.conv_done, "was not started (accel_conv_trigger)"))

    g = Geometry(m, p)

    def convolution(run: Step) -> Step:
        done = together(assign(m.s.conv_done, g.ends), assign(running, ~g.ends))
        return seq(*limits(g), when(g.ends, when(g.has_work, run)), done)

    def accel_conv_trigger() -> Step:
        """Run the configured convolution to its end; the data of the command is ignored.

        An output takes its taps in the order channel block, kernel row, kernel column: each adds a sum of eight lanes,
        rounded once, and saturates once.
        """
        return convolution(when(g.is_apart, _at_once(g), _in_order(g)))

    trigger = m.instruction("accel_conv_trigger", register(device, CONV_TRIGGER))(accel_conv_trigger)
    m.sequential(trigger, convolution(_in_order(g)))


def _after_tap(g: Geometry, tap: Tap, weight: Lanes, activation: Lanes, base: Expr, ends: Operand) -> Expr:
    """The output after a tap (channel block, kernel row, column); bias and ReLU are applied at the last one, if they are enabled."""
    r, q = g.r, rounded_sum(g.p, weight, activation)
    partial, last = accumulated(g.p, q, base), accumulated(g.p, q, base, select(r.conv_bias_on, r.conv_bias, 0), r.conv_relu)
    is_last = all_of(k == n - 1 for k, n in zip(tap, g.taps, strict=True))
    return select(is_last & (r.conv_bias_on | r.conv_relu), select(ends, last, partial), partial)


def _lane(g: Geometry, value: Expr, lane: Operand) -> Expr:
    """What an output vector has in a lane: outputs that are not grouped fill the last filter's, and the others with zeros."""
    return value if g.p.grouped_output else select(lane == g.last_lane, value, 0)


# -- as whole arrays


def _at_once(g: Geometry) -> Step:
    """All outputs tap by tap. Activations outside of the input are zeros, which change no output."""
    rows, cols = g.rows, g.cols

    def activation(block: Expr, row: Expr, col: Expr, lane: Expr) -> Expr:
        value = g.activations.word(block, row - rows.before, col - cols.before, lane)
        return select(rows.is_whole & cols.is_whole, value, select(rows.holds(row) & cols.holds(col), value, 0))

    def outputs(x: Leaf, w: Leaf) -> Array:
        return array(lambda f, i, j: _output(g, x, w, f, i, j), (g.filters, rows.count, cols.count))

    act = array(activation, (g.blocks, rows.padded, cols.padded, LANES))
    wgt = array(g.weights.word, g.weights.extents)
    return let(act, lambda x: let(wgt, lambda w: let(outputs(x, w), lambda y: _store(g, y), "outputs"), "weights"), "activations")


def _output(g: Geometry, x: Leaf, w: Leaf, f: Expr, i: Expr, j: Expr) -> Expr:
    top, left = i * g.rows.stride, j * g.cols.stride
    starts = g.rows.holds(top) & g.cols.holds(left)  # tap (0, 0) reaches this output
    ends = g.rows.holds(top + g.rows.kernel - 1) & g.cols.holds(left + g.cols.kernel - 1)

    def tap(block: Expr, row: Expr, col: Expr, acc: Expr) -> Expr:
        weight, activation = (lambda k: w[f, block, row, col, k]), (lambda k: x[block, top + row, left + col, k])
        return _after_tap(g, (block, row, col), weight, activation, acc, ends)

    return fold(g.taps, select(g.r.conv_accumulate | ~starts, g.outputs.word(*g.output(f, i, j)), 0), tap, 16)


def _store(g: Geometry, y: Leaf) -> Step:
    def vectors(first: Operand, count: int | Expr, lanes: int | Expr) -> Step:
        def word(v: Expr, lane: Expr, i: Expr, j: Expr) -> tuple[tuple[Operand, ...], Expr]:
            f = (first + v) * LANES + lane if g.p.grouped_output else v
            return (first + v, g.rows.place(i), g.cols.place(j), lane), _lane(g, y[f, i, j], lane)

        return g.outputs.store((count, lanes, g.rows.count, g.cols.count), word)

    full_groups, remainder = (g.filters // LANES, g.filters % LANES) if g.p.grouped_output else (g.filters, 0)
    return seq(when(full_groups > 0, vectors(0, full_groups, LANES)), when(remainder > 0, vectors(full_groups, 1, remainder)))


# -- in device order


def _in_order(g: Geometry) -> Step:
    """Tap by tap as the device does it: filter, channel block, input position, and the kernel positions that it meets."""

    def position(f: Expr, block: Expr, row: Expr, col: Expr) -> Step:
        vector = array(lambda k: g.activations.word(block, row, col, k), LANES)
        return let(vector, lambda x: loop(g.taps[1:], lambda kr, kc: _tap_in_order(g, f, (block, kr, kc), (row, col), x)), "vector")

    return loop((g.filters, g.blocks, g.rows.size, g.cols.size), position)


def _tap_in_order(g: Geometry, f: Expr, tap: Tap, position: tuple[Expr, Expr], x: Leaf) -> Step:
    """Add one tap to the output that an input position reaches through it, if there is one."""
    (_, kr, kc), (row, col) = tap, position
    *vector, own_lane = at = g.output(f, g.rows.number(row, kr), g.cols.number(col, kc))
    base = select(all_of(k == 0 for k in tap) & ~g.r.conv_accumulate, 0, g.outputs.word(*at))
    total = array(lambda: _after_tap(g, tap, lambda k: g.weights.word(f, *tap, k), lambda k: x[k], base, 1), ())
    lanes = () if g.p.grouped_output else (LANES,)
    store = let(total, lambda y: g.outputs.store(lanes, lambda lane=own_lane: ((*vector, lane), _lane(g, y[()], lane))), "output")
    return when(g.rows.reaches(row, kr) & g.cols.reaches(col, kc), store)
