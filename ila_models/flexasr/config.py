"""FlexASR configuration words: one row a field, bit ranges of the 128-bit bus word as the specification prints them."""

from __future__ import annotations

from rewrite_compiler.ila import Bits, Bus, Ila
from rewrite_compiler.lang import Array, Step, update

PES = 4
GB_BASE, PE_BASE, PARTITION = 0x3300_0000, 0x3400_0000, 0x0100_0000

# section 3.3: the layout all five engines of the global buffer share
ENGINE_WORD = {
    "is_valid": Bits(0, 0),
    "mode": Bits(8, 10),
    "is_rnn": Bits(16, 16),
    "memory_index_1": Bits(32, 34),
    "memory_index_2": Bits(40, 42),
    "num_vector_1": Bits(48, 55),
    "num_vector_2": Bits(56, 63),
    "num_timestep_1": Bits(64, 79),
    "num_timestep_2": Bits(80, 95),
    "adpbias_1": Bits(96, 98),
    "adpbias_2": Bits(104, 106),
    "adpbias_3": Bits(112, 114),
    "adpbias_4": Bits(120, 122),
}
SHARED = ("is_valid", "memory_index_1", "num_vector_1", "num_timestep_1")
# engine → address of its configuration word and the fields it uses
ENGINES = {
    "control": (0x3370_0010, (*SHARED, "mode", "is_rnn", "memory_index_2", "num_vector_2")),
    "layer_reduce": (0x3380_0010, (*SHARED, "mode")),
    "layer_norm": (0x3390_0010, (*SHARED, "mode", "adpbias_1", "adpbias_3", "adpbias_4")),
    "zero_padding": (0x33A0_0010, (*SHARED, "num_timestep_2")),
    "attention": (0x33B0_0010, (*SHARED, "memory_index_2", "adpbias_1", "adpbias_2", "adpbias_3", "adpbias_4")),
}
# section 3.4 to 3.6
SIZING = {
    "is_valid": Bits(0, 0),
    "is_zero_first": Bits(8, 8),
    "is_cluster": Bits(16, 16),
    "is_bias": Bits(24, 24),
    "num_manager": Bits(32, 35),
    "num_output": Bits(40, 47),
}
MANAGER = {
    "zero_active": Bits(0, 0),
    "adpfloat_bias_w": Bits(8, 10),
    "adpfloat_bias_b": Bits(16, 18),
    "adpfloat_bias_i": Bits(24, 26),
    "num_input": Bits(32, 39),
    "base_weight": Bits(48, 63),
    "base_bias": Bits(64, 79),
    "base_input": Bits(80, 95),
}
ACT_MANAGER = {
    "is_valid": Bits(0, 0),
    "is_zero_first": Bits(8, 8),
    "adpfloat_bias": Bits(16, 18),
    "num_inst": Bits(24, 29),
    "num_output": Bits(32, 39),
    "buffer_addr_base": Bits(48, 52),
    "output_addr_base": Bits(64, 71),
}
# counts are 1 after reset, everything else 0
RESETS = dict.fromkeys(
    ("num_vector_1", "num_vector_2", "num_timestep_1", "num_timestep_2", "num_input", "num_manager", "num_output", "num_inst"), 1
)


def declare_config(m: Ila, bus: Bus) -> None:
    """Declare every configuration word of the global buffer and of the four processing elements."""
    _memory_managers(m, bus)
    for engine, (address, used) in ENGINES.items():
        fields = {name: ENGINE_WORD[name] for name in used}
        m.config(
            f"config_gb_{engine}", bus.write(address), fields, prefix=f"gb_{engine}_", resets=RESETS,
            doc=f"Set up the {engine.replace('_', ' ')} engine.",
            read=bus.read(address),
        )  # fmt: skip
    m.register("sram_config", 32, shape=(PES + 1,), doc="32-bit SRAM configuration words; no functional effect.")
    for pe in range(PES):
        _processing_element(m, bus, pe)


def _memory_managers(m: Ila, bus: Bus) -> None:
    large = {f"num_vector_{k}": Bits(32 * k, 32 * k + 7) for k in range(4)} | {
        f"base_{k}": Bits(32 * k + 16, 32 * k + 31) for k in range(4)
    }
    m.config(
        "config_gb_core_mem_mngr_large", bus.write(0x3340_0010), large, prefix="gb_large_", resets={f"num_vector_{k}": 1 for k in range(4)},
        read=bus.read(0x3340_0010), doc="Set vector counts and base addresses (in vectors) of the four large-buffer managers.",
    )  # fmt: skip
    small = {f"base_{k}": Bits(16 * k, 16 * k + 15) for k in range(8)}
    m.config(
        "config_gb_core_mem_mngr_small", bus.write(0x3340_0020), small, prefix="gb_small_", read=bus.read(0x3340_0020),
        doc="Set the base addresses (in vectors) of the eight small-buffer managers.",
    )  # fmt: skip


def _processing_element(m: Ila, bus: Bus, pe: int) -> None:
    at = PE_BASE + pe * PARTITION
    m.config(
        f"pe{pe}_config_rnn_layer_sizing", bus.write(at + 0x40_0010), SIZING, prefix="pe_", read=bus.read(at + 0x40_0010),
        doc="Set the sizes and switches of the layer that this processing element runs next.",
        shape=(PES,), index=(pe,), resets=RESETS,
    )  # fmt: skip
    for manager, (which, address) in enumerate((("first", 0x40_0020), ("second", 0x40_0040))):
        m.config(
            f"pe{pe}_config_mem_mngr_{which}", bus.write(at + address), MANAGER, prefix="pe_", read=bus.read(at + address),
            doc=f"Set formats, input count and base addresses of memory manager {manager}.",
            shape=(PES, 2), index=(pe, manager), resets=RESETS,
        )  # fmt: skip
    m.config(
        f"pe{pe}_config_act_mngr", bus.write(at + 0x80_0010), ACT_MANAGER, prefix="act_", read=bus.read(at + 0x80_0010),
        doc="Set the activation unit: program length, output vectors, format and base addresses.",
        shape=(PES,), index=(pe,), resets=RESETS,
    )  # fmt: skip
    _lane_words(m, bus, pe, at)


def _lane_words(m: Ila, bus: Bus, pe: int, at: int) -> None:
    """The words whose sixteen bytes are sixteen entries: codebooks and the activation program."""
    if pe == 0:
        m.register("cluster_table", 8, shape=(PES, 2, 16), binding="data", doc="Codebooks of clustered weights: 16 codes a memory manager.")
        m.register("act_vector", 8, shape=(PES, 32), doc="Activation programs: 32 instructions of one byte.")
    for manager, (which, address) in enumerate((("first", 0x40_0030), ("second", 0x40_0050))):
        _codebook(m, bus, pe, manager, at + address, which)
    for half, (which, address) in enumerate((("0_15", 0x80_0020), ("16_31", 0x80_0030))):
        _program(m, bus, pe, half, at + address, which)


def _codebook(m: Ila, bus: Bus, pe: int, manager: int, address: int, which: str) -> None:
    def codebook(entries: Array) -> Step:
        """Store the sixteen entries of a codebook."""
        return update(m.s.cluster_table, 16, lambda j: ((pe, manager, j), entries[j]))

    m.instruction(f"pe{pe}_config_cluster_table_{which}", bus.write(address), lanes="entries")(codebook)
    m.readback(f"pe{pe}_read_cluster_table_{which}", bus.read(address), lambda j: m.s.cluster_table[pe, manager, j])


def _program(m: Ila, bus: Bus, pe: int, half: int, address: int, which: str) -> None:
    def program(instructions: Array) -> Step:
        """Store sixteen activation instructions."""
        return update(m.s.act_vector, 16, lambda j: ((pe, j + 16 * half), instructions[j]))

    m.instruction(f"pe{pe}_config_act_vector_{which}", bus.write(address), lanes="instructions")(program)
    m.readback(f"pe{pe}_read_act_vector_{which}", bus.read(address), lambda j: m.s.act_vector[pe, j + 16 * half])
