"""FlexASR configuration words: one row a field, bit ranges of the 128-bit bus word as the specification prints them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rewrite_compiler.ila import Bits, Bus, Ila, Match, bit_fields
from rewrite_compiler.lang import Array, Step, update

PES = 4
SRAM = "Set a 32-bit SRAM configuration word; it has no effect."
GB_BASE, PE_BASE, PARTITION = 0x3300_0000, 0x3400_0000, 0x0100_0000
UNIT = 20  # address bits below the number of a unit

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
SIZING = bit_fields("0 is_valid, 8 is_zero_first, 16 is_cluster, 24 is_bias, 32:35 num_manager, 40:47 num_output")
MANAGER = bit_fields(
    "0 zero_active, 8:10 adpfloat_bias_w, 16:18 adpfloat_bias_b, 24:26 adpfloat_bias_i, "
    "32:39 num_input, 48:63 base_weight, 64:79 base_bias, 80:95 base_input"
)
ACT_MANAGER = bit_fields(
    "0 is_valid, 8 is_zero_first, 16:18 adpfloat_bias, 24:29 num_inst, 32:39 num_output, 48:52 buffer_addr_base, 64:71 output_addr_base"
)
COUNTS = ("num_vector", "num_timestep", "num_input", "num_manager", "num_output", "num_inst")  # 1 after the hardware's reset
# which large-buffer manager has what bits of their common word; the small-buffer managers have a base each
LARGE_MANAGERS = {f"num_vector_{k}": Bits(32 * k, 32 * k + 7) for k in range(4)} | {
    f"base_{k}": Bits(32 * k + 16, 32 * k + 31) for k in range(4)
}
SMALL_MANAGERS = {f"base_{k}": Bits(16 * k, 16 * k + 15) for k in range(8)}


def declare_config(m: Ila, bus: Bus) -> None:
    """Declare every configuration word of the global buffer and of the four processing elements."""
    counts = "Set vector counts and base addresses (in vectors) of the four large-buffer managers."
    _word(m, bus, "config_gb_core_mem_mngr_large", 0x3340_0010, LARGE_MANAGERS, "gb_large_", counts)
    bases = "Set the base addresses (in vectors) of the eight small-buffer managers."
    _word(m, bus, "config_gb_core_mem_mngr_small", 0x3340_0020, SMALL_MANAGERS, "gb_small_", bases)
    for engine, (address, names) in ENGINES.items():
        fields = {name: ENGINE_WORD[name] for name in names}
        _word(m, bus, f"config_gb_{engine}", address, fields, f"gb_{engine}_", f"Set up the {engine.replace('_', ' ')} engine.")
    if is_hardware(m):
        sram = {"config": Bits(0, 31)}
        for k, name in enumerate(("config_gb_sram", *(f"pe{pe}_config_sram" for pe in range(PES)))):
            at = GB_BASE + k * PARTITION + 0x30_0000
            words = replace(bus, unused_bits=UNIT)  # all of the unit is one word
            _word(m, words, name, at, sram, "sram_", SRAM, shape=(PES + 1,), index=(k,))
    for pe in range(PES):
        _processing_element(m, bus, pe)


def is_hardware(m: Ila) -> bool:
    """Tell whether the model is that of the hardware; the published ILA has neither SRAM configuration nor most of the reads."""
    return bool(m.parameters["behaviour"] == "hardware")


def trigger(m: Ila, bus: Bus, address: int) -> Match:
    """Match the commands that start an engine: writes; in hardware reads, too."""
    return bus.access(address) if is_hardware(m) else bus.write(address)


def _word(m: Ila, bus: Bus, name: str, address: int, fields: Mapping[str, Bits], prefix: str, doc: str, **place: Any) -> None:
    """Declare a configuration word; in hardware it can be read back. `place` is the unit's among several."""
    resets = {key: 1 for key in fields if key.startswith(COUNTS) and is_hardware(m)}
    read = bus.read(address) if is_hardware(m) else None
    m.config(name, bus.write(address), fields, prefix=prefix, doc=doc, resets=resets, read=read, **place)


def _processing_element(m: Ila, bus: Bus, pe: int) -> None:
    at, element = PE_BASE + pe * PARTITION, {"shape": (PES,), "index": (pe,)}
    sizes = "Set the sizes and switches of the layer that this processing element runs next."
    _word(m, bus, f"pe{pe}_config_rnn_layer_sizing", at + 0x40_0010, SIZING, "pe_", sizes, **element)
    for manager, (ordinal, address) in enumerate((("first", 0x40_0020), ("second", 0x40_0040))):
        doc = f"Set formats, input count and base addresses of memory manager {manager}."
        _word(m, bus, f"pe{pe}_config_mem_mngr_{ordinal}", at + address, MANAGER, "pe_", doc, shape=(PES, 2), index=(pe, manager))
    unit = "Set the activation unit: program length, output vectors, format and base addresses."
    fields = ACT_MANAGER if is_hardware(m) else {**ACT_MANAGER, "buffer_addr_base": Bits(48, 63)}
    _word(m, bus, f"pe{pe}_config_act_mngr", at + 0x80_0010, fields, "act_", unit, **element)
    _lane_words(m, bus, pe, at)


def _lane_words(m: Ila, bus: Bus, pe: int, at: int) -> None:
    """The words whose sixteen bytes are sixteen entries: codebooks and the activation program."""
    if pe == 0:
        m.register("cluster_table", 8, shape=(PES, 2, 16), binding="data", doc="Codebooks of clustered weights: 16 codes a memory manager.")
        m.register("act_vector", 8, shape=(PES, 32), doc="Activation programs: 32 instructions of one byte.")
    for manager, (ordinal, address) in enumerate((("first", 0x40_0030), ("second", 0x40_0050))):
        _codebook(m, bus, pe, manager, at + address, ordinal)
    for half, (ordinal, address) in enumerate((("0_15", 0x80_0020), ("16_31", 0x80_0030))):
        _program(m, bus, pe, half, at + address, ordinal)


def _codebook(m: Ila, bus: Bus, pe: int, manager: int, address: int, ordinal: str) -> None:
    def codebook(entries: Array) -> Step:
        """Store the sixteen entries of a codebook."""
        return update(m.s.cluster_table, 16, lambda j: ((pe, manager, j), entries[j]))

    m.instruction(f"pe{pe}_config_cluster_table_{ordinal}", bus.write(address), lanes="entries")(codebook)
    if is_hardware(m):
        m.readback(f"pe{pe}_read_cluster_table_{ordinal}", bus.read(address), lambda j: m.s.cluster_table[pe, manager, j])


def _program(m: Ila, bus: Bus, pe: int, half: int, address: int, lanes: str) -> None:
    def program(instructions: Array) -> Step:
        """Store sixteen activation instructions."""
        return update(m.s.act_vector, 16, lambda j: ((pe, j + 16 * half), instructions[j]))

    m.instruction(f"pe{pe}_config_act_vector_{lanes}", bus.write(address), lanes="instructions")(program)
    if is_hardware(m):
        m.readback(f"pe{pe}_read_act_vector_{lanes}", bus.read(address), lambda j: m.s.act_vector[pe, j + 16 * half])
