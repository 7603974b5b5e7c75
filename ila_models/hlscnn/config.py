"""HLSCNN configuration registers: one row a register, bit ranges of the 32-bit word as the specification prints them."""

from rewrite_compiler.ila import Bus, Ila, Match, Word, bit_fields, joined
from rewrite_compiler.lang import any_of, minimum

from .revisions import SPAD0_BASE, Revision

WINDOW = 0x3200_0000  # where the CPU sees the device
REGISTERS = 30
CONV_TRIGGER = 17
IGNORED = (*range(4), *range(6, 12))  # self-test, AXI attributes, scratchpad configuration
NO_DATA_PATH = "Start a unit whose data path is not modelled."
UNUSED = "Set a register of a unit whose data path is not modelled."
FILTERS = {False: "27 enable_wb, 26:19 filters", True: "31 enable_wb, 30:19 filters"}  # by whether they may be more than 8 bits
# register → the write, cfg_wr_<unit>_<what> (its fields are kept as <unit>_<field>), the fields, the meaning
TABLE = {
    4: ("cfg_wr_soc_mem_base", "31:0 base", "Set the SoC byte address that the next scratchpad fill reads."),
    5: ("cfg_wr_soc_mem_length", "31:0 length", "Set the number of 16-byte vectors of a scratchpad fill."),
    12: ("fc_start", "", NO_DATA_PATH),
    13: ("cfg_wr_fc_weight_base", "31:0 base", UNUSED),
    14: ("cfg_wr_fc_act_base", "31:0 base", UNUSED),
    15: ("cfg_wr_fc_size", "26:24 batch_minus_1, 23:12 rows, 11:0 cols", UNUSED),
    16: ("cfg_wr_fc_function", "24:3 relu_threshold, 2 do_bias, 1:0 function", UNUSED),
    18: ("cfg_wr_conv_act_base", "31:0 base", "Set the address of the activations: in SoC memory, or on the bus in unified designs."),
    19: ("cfg_wr_conv_weight_base", "31:0 base", "Set the bus address of the weights; only unified designs honour it."),
    20: ("cfg_wr_conv_output_base", "31:0 base", "Set the bus address of the outputs; only unified designs honour it."),
    21: ("cfg_wr_conv_input_size", "31:20 channels, 19:10 rows, 9:0 cols", "Set the size of the input tensor."),
    22: ("cfg_wr_conv_output_size", "31:20 channels, 19:10 rows, 9:0 cols",
         "Set the size of the output tensor; only designs with grouped outputs use it."),
    23: ("cfg_wr_conv_kernel_size", "21:19 row_stride, 18:16 col_stride, 15:8 rows, 7:0 cols", "Set the kernel's size and strides."),
    24: ("cfg_wr_conv_channels", "{filters}, 18 accumulate, 17 relu, 16 bias_on, 15:0 signed bias",
         "Set filter count and bias, and switch bias, ReLU and accumulation on."),
    25: ("reduction_start", "", NO_DATA_PATH),
    26: ("cfg_wr_reduction_input_base", "31:0 base", UNUSED),
    27: ("cfg_wr_reduction_output_base", "31:0 base", UNUSED),
    28: ("cfg_wr_reduction_input_size", "29:20 channels, 19:10 rows, 9:0 cols", UNUSED),
    29: ("cfg_wr_reduction_bias", "15:0 signed bias", UNUSED),
}  # fmt: skip


def declare_config(m: Ila, device: Bus, p: Revision) -> None:
    """Declare the configuration registers and the writes that have no effect."""
    start = minimum(m.word("addr", 0, 3), 12)  # the value: four data bytes from the offset in the low bits of the address, 12 at most
    value = joined(lambda k: m.inputs["data"][start + k], 4)
    for number, (name, row, doc) in TABLE.items():
        prefix = name.removeprefix("cfg_wr_").rpartition("_")[0]
        fields = bit_fields(row.format(filters=FILTERS[p.filter_bits > 8]))
        word = Word(value, 8 * (4 * number % 16))  # assembled with the register's own address, whose low bits place it
        m.config(name, register(device, number), fields, prefix=f"{prefix}_", doc=doc, word=word, register=f"Register {number}")
    m.config("cfg_wr_ignored", register(device, *IGNORED), {}, doc="Set a register that has no effect on results.")


def register(device: Bus, *numbers: int) -> Match:
    """Match a write that selects one of these registers, which repeat every 120 bytes."""
    is_selected = any_of((device.address >> 2) % REGISTERS == number for number in numbers)
    return device.match(True, (device.address < SPAD0_BASE) & is_selected, WINDOW + 4 * numbers[0])
