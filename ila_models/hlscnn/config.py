"""HLSCNN configuration registers: one row a register, bit ranges of the 32-bit word as the specification prints them."""

from __future__ import annotations

from functools import reduce
from operator import or_

from rewrite_compiler.ila import Bits, Bus, Ila, Match, Word, joined
from rewrite_compiler.lang import minimum

from .revisions import SPAD0_BASE, Revision

WINDOW = 0x3200_0000  # where the CPU sees the device
LAST_ADDRESS = WINDOW + 0x78
REGISTERS = 30
CONV_TRIGGER = 17
NO_DATA_PATH = "Start a unit whose data path is not modelled."
IGNORED = (*range(4), *range(6, 12))  # self-test, AXI attributes, scratchpad configuration
UNUSED = "Set a register of a unit whose data path is not modelled."

BASE = {"base": Bits(0, 31)}
SIZE = {"channels": Bits(20, 31), "rows": Bits(10, 19), "cols": Bits(0, 9)}
KERNEL = {"row_stride": Bits(19, 21), "col_stride": Bits(16, 18), "rows": Bits(8, 15), "cols": Bits(0, 7)}
FC_SIZE = {"batch_minus_1": Bits(24, 26), "rows": Bits(12, 23), "cols": Bits(0, 11)}
REDUCTION_SIZE = {"channels": Bits(20, 29), "rows": Bits(10, 19), "cols": Bits(0, 9)}
FC_FUNCTION = {"relu_threshold": Bits(3, 24), "do_bias": Bits(2, 2), "function": Bits(0, 1)}
CHANNELS = {"accumulate": Bits(18, 18), "relu": Bits(17, 17), "bias_on": Bits(16, 16), "bias": Bits(0, 15, signed=True)}
# register → what its write is called, what its fields are kept as (<prefix>_<field>), the fields, the meaning
TABLE = {
    4: ("cfg_wr_soc_mem_base", "soc_mem", BASE, "Set the SoC byte address that the next scratchpad fill reads."),
    5: ("cfg_wr_soc_mem_length", "soc_mem", {"length": Bits(0, 31)}, "Set the number of 16-byte vectors of a scratchpad fill."),
    12: ("fc_start", "", {}, NO_DATA_PATH),
    13: ("cfg_wr_fc_weight_base", "fc_weight", BASE, UNUSED),
    14: ("cfg_wr_fc_act_base", "fc_act", BASE, UNUSED),
    15: ("cfg_wr_fc_size", "fc", FC_SIZE, UNUSED),
    16: ("cfg_wr_fc_function", "fc", FC_FUNCTION, UNUSED),
    18: ("cfg_wr_conv_act_base", "conv_act", BASE, "Set the address of the activations: in SoC memory, or on the bus in unified designs."),
    19: ("cfg_wr_conv_weight_base", "conv_weight", BASE, "Set the bus address of the weights; only unified designs honour it."),
    20: ("cfg_wr_conv_output_base", "conv_output", BASE, "Set the bus address of the outputs; only unified designs honour it."),
    21: ("cfg_wr_conv_input_size", "conv_input", SIZE, "Set the size of the input tensor."),
    22: ("cfg_wr_conv_output_size", "conv_output", SIZE, "Set the size of the output tensor; only designs with grouped outputs use it."),
    23: ("cfg_wr_conv_kernel_size", "conv_kernel", KERNEL, "Set the kernel's size and strides."),
    24: ("cfg_wr_conv_channels", "conv", CHANNELS, "Set filter count and bias, and switch bias, ReLU and accumulation on."),
    25: ("reduction_start", "", {}, NO_DATA_PATH),
    26: ("cfg_wr_reduction_input_base", "reduction_input", BASE, UNUSED),
    27: ("cfg_wr_reduction_output_base", "reduction_output", BASE, UNUSED),
    28: ("cfg_wr_reduction_input_size", "reduction_input", REDUCTION_SIZE, UNUSED),
    29: ("cfg_wr_reduction_bias", "reduction", {"bias": Bits(0, 15, signed=True)}, UNUSED),
}  # fmt: skip


def declare_config(m: Ila, device: Bus, p: Revision) -> None:
    """Declare the configuration registers and the writes that have no effect."""
    filters = 8 if p.filter_bits <= 8 else 12  # the field grew; enable_wb, without effect, lies above it
    grown = {"enable_wb": Bits(19 + filters, 19 + filters), "filters": Bits(19, 18 + filters)}
    start = minimum(m.word("addr", 0, 3), 12)  # the value: four data bytes from the offset in the low bits of the address, 12 at most
    value = joined(lambda k: m.inputs["data"][start + k], 4)
    for number, (name, prefix, fields, doc) in TABLE.items():
        word = Word(value, 8 * (4 * number % 16))  # assembled with the register's own address, whose low bits place it
        every = grown | fields if prefix == "conv" else fields
        m.config(name, register(device, number), every, prefix=f"{prefix}_", doc=doc, word=word, register=f"Register {number}")
    m.config("cfg_wr_ignored", register(device, *IGNORED), {}, doc="Set a register that has no effect on results.")


def register(device: Bus, *numbers: int) -> Match:
    """Match a write that selects one of these registers, which repeat every 120 bytes."""
    is_selected = reduce(or_, ((device.address >> 2) % REGISTERS == number for number in numbers))
    return device.match(True, (device.address < SPAD0_BASE) & is_selected, WINDOW + 4 * numbers[0])
