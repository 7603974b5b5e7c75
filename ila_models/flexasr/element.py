"""FlexASR processing element: the multiply-accumulate core and the activation unit that runs a small vector program."""

from collections.abc import Callable

from rewrite_compiler.ila import Ila
from rewrite_compiler.lang import Expr, Step, cases, clamp, loop, maximum, reduce_sum, select, signed, update, wrap

from .buffers import ACT, INPUT, LANES, WEIGHT, room
from .numerics import MAX20, SIGMOID, TANH, decoded, encode, fixed, one_minus, relu

Send = Callable[[Expr, Callable[[Expr], Expr]], Step]  # (vector address, lane → code) → what the receiver does


def weight_code(m: Ila, pe: Expr, manager: Expr, tile: Expr, row: Expr, column: Expr) -> Expr:
    """The code at (row, column) of a 16×16 weight tile: a byte, or a 4-bit index into the manager's codebook."""
    base = m.s.pe_base_weight[pe, manager]
    code = m.s.weight[pe, (base + tile * 16 + row) % WEIGHT, column]
    packed = m.s.weight[pe, (base + tile * 8 + row // 2) % WEIGHT, 8 * (row % 2) + column // 2]
    nibble = (packed >> (column % 2 * 4)) % 16
    return select(m.s.pe_is_cluster[pe], m.s.cluster_table[pe, manager, nibble], code)


def core_result(m: Ila, pe: Expr, number: Expr, row: Expr, is_first: Expr) -> Expr:
    """Lane `row` of the core's result `number`: outputs in order, the managers of one output one after the other.

    Products and sums wrap at 32 bits; the sum is shifted to 14 fraction bits, the bias added, and the result clamped.
    """
    managers = maximum(m.s.pe_num_manager[pe], 1)  # the specification has no meaning for 0
    output, manager = number // managers, number % managers % 2
    count = m.s.pe_num_input[pe, manager]
    base = m.s.pe_base_input[pe, manager]

    def product(i: Expr, j: Expr) -> Expr:
        x = m.s.input_buffer[pe, (base + i) % room(m, INPUT), j]
        return decoded(weight_code(m, pe, manager, output * count + i, row, j)) * decoded(x)

    total = wrap(reduce_sum(product, (count, LANES)), 32)
    skipped = m.s.pe_zero_active[pe, manager] & m.s.pe_is_zero_first[pe] & is_first
    scale = 14 - m.s.pe_adpfloat_bias_w[pe, manager] - m.s.pe_adpfloat_bias_i[pe, manager]
    scaled = select(skipped, 0, total >> clamp(scale, 0, None))
    at = (m.s.pe_base_bias[pe, manager] + output) % room(m, INPUT)
    bias = fixed(m.s.input_buffer[pe, at, row], m.s.pe_adpfloat_bias_b[pe, manager])
    return clamp(scaled + select(m.s.pe_is_bias[pe], bias, 0), -MAX20, MAX20)


def run_element(m: Ila, pe: Expr, is_first: Expr, send: Send) -> Step:
    """Run the activation program once for each of its output vectors; INPE takes the core's next result."""
    results = inputs_before(m, pe, m.s.act_num_inst[pe])

    def one_output(oc: Expr) -> Step:
        return loop(
            m.s.act_num_inst[pe], lambda pc: activation(m, pe, oc, pc % 32, oc * results + inputs_before(m, pe, pc), is_first, send)
        )

    return loop(m.s.act_num_output[pe], one_output)


def inputs_before(m: Ila, pe: Expr, pc: Expr) -> Expr:
    """Number of INPE instructions before `pc`."""
    return reduce_sum(lambda k: m.s.act_vector[pe, k % 32][4:8] == 3, pc)


def activation(m: Ila, pe: Expr, oc: Expr, pc: Expr, result: Expr, is_first: Expr, send: Send) -> Step:
    """Execute activation instruction `pc`: op = bits 7:4, A2 = bits 3:2 (destination), A1 = bits 1:0; others do nothing."""
    code = m.s.act_vector[pe, pc]
    op, a2, a1 = code[4:8], code[2:4], code[0:2]
    regs, bias = m.s.act_regs, m.s.act_adpfloat_bias[pe]
    slot = (oc + m.s.act_buffer_addr_base[pe]) % room(m, ACT)
    is_zero = m.s.act_is_zero_first[pe] & is_first

    def to_register(value: Callable[[Expr], Expr]) -> Step:
        return update(regs, LANES, lambda r: ((pe, a2, r), value(r)))

    def on_self(function: Callable[[Expr], Expr]) -> Step:
        return to_register(lambda r: function(regs[pe, a2, r]))

    sigmoid = SIGMOID[m.parameters["sigmoid"]]
    return cases(
        op,
        {
            0x1: to_register(lambda r: select(is_zero, 0, fixed(m.s.act_buffer[pe, slot, r], bias))),  # LOAD
            0x2: update(m.s.act_buffer, LANES, lambda r: ((pe, slot, r), encode(regs[pe, a2, r], bias))),  # STORE
            0x3: to_register(lambda r: core_result(m, pe, result, r, is_first)),  # INPE
            0x4: send((oc + m.s.act_output_addr_base[pe]) % 256, lambda r: encode(regs[pe, a2, r], bias)),  # OUTGB
            0x7: to_register(lambda r: regs[pe, a1, r]),  # COPY
            0x8: to_register(lambda r: signed(regs[pe, a1, r] + regs[pe, a2, r], 20)),  # EADD
            0x9: to_register(lambda r: signed((regs[pe, a1, r] * regs[pe, a2, r]) >> 14, 20)),  # EMUL
            0xA: on_self(sigmoid),  # SIGM
            0xB: on_self(TANH),  # TANH
            0xC: on_self(relu),  # RELU
            0xD: on_self(one_minus),  # ONEX
        },
    )
