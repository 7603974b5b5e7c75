"""HLSCNN configuration registers: one row a register, bit ranges of the 32-bit word as the specification prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rewrite_compiler.ila import Bits, Ila, Match, Operand
from rewrite_compiler.lang import NOTHING, Array, Expr, Leaf, Step, assign, extract, lift, minimum, signed, together

from .revisions import SPAD0_BASE, Revision

WINDOW = 0x3200_0000  # where the CPU sees the device
LAST_ADDRESS = WINDOW + 0x78
REGISTERS = 30
CONV_TRIGGER = 17
NO_DATA_PATH = {"fc_start": 12, "reduction_start": 25}
IGNORED = (*range(4), *range(6, 12))  # self-test, AXI attributes, scratchpad configuration


@dataclass(frozen=True)
class Register:
    """One register: what its write is called, its fields (kept as <prefix>_<field>), its meaning."""

    name: str
    prefix: str
    fields: Mapping[str, Bits]
    doc: str = "Set a register of a unit whose data path is not modelled."


BASE = {"base": Bits(0, 31)}
SIZE = {"channels": Bits(20, 31), "rows": Bits(10, 19), "cols": Bits(0, 9)}
KERNEL = {"row_stride": Bits(19, 21), "col_stride": Bits(16, 18), "rows": Bits(8, 15), "cols": Bits(0, 7)}
FC_SIZE = {"batch_minus_1": Bits(24, 26), "rows": Bits(12, 23), "cols": Bits(0, 11)}
FC_FUNCTION = {"relu_threshold": Bits(3, 24), "do_bias": Bits(2, 2), "function": Bits(0, 1)}
CHANNELS = {"accumulate": Bits(18, 18), "relu": Bits(17, 17), "bias_on": Bits(16, 16), "bias": Bits(0, 15, signed=True)}
TABLE: dict[int, Register] = {
    4: Register("soc_mem_base", "soc_mem", BASE, "Set the SoC byte address that the next scratchpad fill reads."),
    5: Register("soc_mem_length", "soc_mem", {"length": Bits(0, 31)}, "Set the number of 16-byte vectors of a scratchpad fill."),
    13: Register("fc_weight_base", "fc_weight", BASE),
    14: Register("fc_act_base", "fc_act", BASE),
    15: Register("fc_size", "fc", FC_SIZE),
    16: Register("fc_function", "fc", FC_FUNCTION),
    18: Register("conv_act_base", "conv_act", BASE, "Set the address of the activations: in SoC memory, or on the bus in unified designs."),
    19: Register("conv_weight_base", "conv_weight", BASE, "Set the bus address of the weights; only unified designs honour it."),
    20: Register("conv_output_base", "conv_output", BASE, "Set the bus address of the outputs; only unified designs honour it."),
    21: Register("conv_input_size", "conv_input", SIZE, "Set the size of the input tensor."),
    22: Register("conv_output_size", "conv_output", SIZE, "Set the size of the output tensor; only designs with grouped outputs use it."),
    23: Register("conv_kernel_size", "conv_kernel", KERNEL, "Set the kernel's size and strides."),
    24: Register("conv_channels", "conv", CHANNELS, "Set filter count and bias, and switch bias, ReLU and accumulation on."),
    26: Register("reduction_input_base", "reduction_input", BASE),
    27: Register("reduction_output_base", "reduction_output", BASE),
    28: Register("reduction_input_size", "reduction_input", {"channels": Bits(20, 29), "rows": Bits(10, 19), "cols": Bits(0, 9)}),
    29: Register("reduction_bias", "reduction", {"bias": Bits(0, 15, signed=True)}),
}  # fmt: skip


def declare_config(m: Ila, p: Revision) -> None:
    """Declare the configuration registers and the writes that have no effect."""
    filters = 8 if p.filter_bits <= 8 else 12  # the field grew; enable_wb, without effect, lies above it
    grown = {"enable_wb": Bits(19 + filters, 19 + filters), "filters": Bits(19, 18 + filters)}
    for number, register in TABLE.items():
        _register(m, number, register, {**grown, **register.fields} if register.prefix == "conv" else register.fields)
    for name, number in NO_DATA_PATH.items():
        _instruction(m, name, number, is_register(m, number), {}, "Start a unit whose data path is not modelled.")
    ignored = lift(0)
    for number in IGNORED:
        ignored = ignored | is_register(m, number)
    _instruction(m, "cfg_wr_ignored", IGNORED[0], ignored, {}, "Set a register that has no effect on results.")


def _register(m: Ila, number: int, register: Register, fields: Mapping[str, Bits]) -> None:
    for name, bits in fields.items():
        m.register(f"{register.prefix}_{name}", bits.width, signed=bits.signed, doc=f"Register {number}, bits {bits.high}:{bits.low}.")
    operands = {name: _field(m, number, name, bits) for name, bits in fields.items()}
    _instruction(m, f"cfg_wr_{register.name}", number, is_register(m, number), operands, register.doc, register.prefix)


def _instruction(m: Ila, name: str, number: int, condition: Expr, operands: Mapping[str, Operand], doc: str, prefix: str = "") -> None:
    def store(**fields: Array) -> Step:
        updates = [assign(getattr(m.s, f"{prefix}_{key}"), leaf[()]) for key, leaf in fields.items()]
        return together(*updates) if updates else NOTHING

    store.__doc__ = doc
    m.instruction(name, Match(condition, address_of(number), operands))(store)


def _field(m: Ila, number: int, name: str, bits: Bits) -> Operand:
    """A field of the 32-bit value; assembled commands use the register's canonical address, whose low bits place it."""
    term = extract(aligned_word(m), bits.low, bits.width)
    if bits.signed:
        term = signed(term, bits.width)
    shift = 8 * (4 * number % 16)
    return Operand(Leaf((), term.interval, False, name), term, "data", Bits(shift + bits.low, shift + bits.high, bits.signed))


def aligned_word(m: Ila) -> Expr:
    """Return the value of a configuration write: the four data bytes from the offset in the low address bits, 12 at most."""
    start = minimum(m.inputs["addr"][()][0:4], 12)
    word = lift(0)
    for k in range(4):
        word = word + (m.inputs["data"][start + k] << 8 * k)
    return word


def masked(m: Ila) -> Expr:
    """Return the address without the byte of the device window."""
    return m.inputs["addr"][()][0:24]


def on_bus(m: Ila, *, is_write: bool) -> Expr:
    """Return the condition for a write (or read) of the device itself, not of the SoC memory."""
    wr, rd = m.inputs["wr"][()], m.inputs["rd"][()]
    direction = (wr & ~rd if is_write else rd & ~wr) & (m.inputs["addr"][()] <= LAST_ADDRESS)
    return direction & ~m.inputs["virtual"][()] if m.parameters["soc_window"] is None else direction


def is_register(m: Ila, number: int) -> Expr:
    """Return the condition for a write that selects a register; the registers repeat every 120 bytes."""
    return on_bus(m, is_write=True) & (masked(m) < SPAD0_BASE) & ((masked(m) >> 2) % REGISTERS == number)


def address_of(number: int) -> dict[str, int]:
    """Return the inputs the assembler fixes for a write of a register."""
    return {"wr": 1, "rd": 0, "addr": WINDOW + 4 * number}
