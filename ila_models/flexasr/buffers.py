"""FlexASR buffers: stores and loads of one 16-lane vector, and where a timestep lies in the large buffer."""

from rewrite_compiler.ila import Bus, Ila, lanes_of
from rewrite_compiler.lang import Array, Expr, Leaf, Operand, Step, lift, minimum, switch, update

from .config import GB_BASE, PARTITION, PE_BASE, PES, is_hardware

LANES = 16
LARGE, SMALL, WEIGHT, INPUT, ACT = 1 << 16, 1 << 10, 1 << 16, 1 << 8, 1 << 5  # vectors
UNBOUNDED = 1 << 17  # more than any base and offset


def declare_buffers(m: Ila, bus: Bus) -> None:
    """Declare the memories of both partitions and the commands that write and read their vectors."""
    m.memory("large", (LARGE, LANES), 8, doc="Global buffer, large part: AdaptivFloat codes, 16 a vector.")
    m.memory("small", (room(m, SMALL), LANES), 8, doc="Global buffer, small part: codes, or 32-bit words during attention.")
    m.memory("weight", (PES, WEIGHT, LANES), 8, doc="Weight buffers of the processing elements.")
    m.memory("input_buffer", (PES, room(m, INPUT), LANES), 8, doc="Input buffers: x, h and biases.")
    m.memory("act_buffer", (PES, room(m, ACT), LANES), 8, doc="Vector buffers of the activation units.")
    m.register(
        "act_regs", 20, shape=(PES, 4, LANES), signed=True, binding="data", doc="Registers R0…R3 of the activation units, 14 fraction bits."
    )
    _vectors(m, bus, "gb_core_{}_large", m.s.large, (), GB_BASE + 0x50_0000, LARGE)
    _vectors(m, bus, "gb_core_{}_small", m.s.small, (), GB_BASE + 0x60_0000, SMALL)
    for pe in range(PES):
        at = PE_BASE + pe * PARTITION
        _vectors(m, bus, f"pe{pe}_core_{{}}_weight_buffer", m.s.weight, (pe,), at + 0x50_0000, WEIGHT, is_read=is_hardware(m))
        _vectors(m, bus, f"pe{pe}_core_{{}}_input_buffer", m.s.input_buffer, (pe,), at + 0x60_0000, INPUT, is_read=is_hardware(m))
        _vectors(m, bus, f"pe{pe}_act_{{}}_buffer", m.s.act_buffer, (pe,), at + 0x90_0000, ACT)


def _vectors(m: Ila, bus: Bus, name: str, memory: Leaf, unit: tuple[int, ...], base: int, count: int, *, is_read: bool = True) -> None:
    def store(index: Array, vector: Array) -> Step:
        """Store one vector."""
        return update(memory, LANES, lambda j: ((*unit, index[()], j), vector[j]))

    def load(index: Array) -> Array:
        """Load one vector."""
        return lanes_of(memory, *unit, index[()])

    m.instruction(name.format("store"), bus.write_range(base, count), lanes="vector")(store)
    if is_read:
        m.instruction(name.format("load"), bus.read_range(base, count))(load)


def large_address(m: Ila, index: Expr, timestep: Operand, vector: Operand, vectors_of_engine: Expr) -> Expr:
    """LA(m, t, v): timesteps in groups of 16; inside a group vector v of the 16 timesteps is contiguous.

    The hardware counts vectors by the memory manager, the published ILA by the engine.
    """
    manager = index % 4 if is_hardware(m) else minimum(index, 3)
    base = switch(manager, *(m.r[f"gb_large_base_{k}"] for k in range(4)))
    count = switch(manager, *(m.r[f"gb_large_num_vector_{k}"] for k in range(4)))
    if m.parameters["behaviour"] == "published_ila":
        count = vectors_of_engine
    t = lift(timestep)
    return (base + t % 16 + ((t // 16) * count + vector) * 16) % LARGE


def small_address(m: Ila, index: Expr, vector: Operand) -> Expr:
    """SA(m, v) = base_small[m] + v."""
    base = switch(index, *(m.r[f"gb_small_base_{k}"] for k in range(8)))
    return (base + vector) % room(m, SMALL)


def room(m: Ila, vectors: int) -> int:
    """Return where the addresses of a buffer wrap; those of the published ILA do not, although the bus reaches no more vectors."""
    return vectors if is_hardware(m) else UNBOUNDED
