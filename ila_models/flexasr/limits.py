"""FlexASR engines: what a configuration must fulfil; strict simulation raises the first sentence that does not hold.

The hardware goes on: engines that are not valid ignore their start, addresses wrap, undefined activation instructions do
nothing. A program that relies on it is a mistake more often than not.
"""

from rewrite_compiler.ila import Ila
from rewrite_compiler.lang import Expr, Step, any_of, ceil_div, lift, maximum, minimum, reduce, require, seq, switch, when

from .buffers import ACT, INPUT, LARGE, SMALL, WEIGHT
from .config import PES, is_hardware

CONFIGURED, UNDEFINED, CAPACITY = "I112", "I113", "I114"
INSTRUCTIONS = 32
DEFINED = (0x1, 0x2, 0x3, 0x4, 0x7, 0x8, 0x9, 0xA, 0xB, 0xC, 0xD)
DECODER, MAX_ROWS = 3, 1024
GAMMA, BETA, SCORES = 5, 6, 7


def engine_started(m: Ila, engine: str) -> Step:
    """Return the diagnostic of a start that the engine ignores."""
    valid = m.r[f"gb_{engine}_is_valid"]
    return require(valid, CONFIGURED, f"{engine} is started, but config_gb_{engine} has is_valid 0")


def in_large(m: Ila, engine: str, timesteps: Expr | None = None) -> Step:
    """Return the diagnostics of an engine that works on timesteps of the large buffer."""
    index, count = m.r[f"gb_{engine}_memory_index_1"], m.r[f"gb_{engine}_num_vector_1"]
    steps = m.r[f"gb_{engine}_num_timestep_1"] if timesteps is None else timesteps
    return _region(m, engine, index, count, steps)


def _region(m: Ila, engine: str, index: Expr, count: Expr, steps: Expr) -> Step:
    """Timesteps of a memory manager must lie inside of the large buffer, and both counts of vectors agree."""
    manager = index % 4 if is_hardware(m) else minimum(index, 3)
    base = switch(manager, *(m.r[f"gb_large_base_{k}"] for k in range(4)))
    vectors = switch(manager, *(m.r[f"gb_large_num_vector_{k}"] for k in range(4)))
    end = base + ceil_div(steps, 16) * 16 * count
    agree = f"{engine} counts {{count}} vectors a timestep, its memory manager {{held}}: hardware and published model differ there"
    sentence = f"{engine} uses the large buffer up to vector {{end}}, which has {LARGE}"
    return seq(
        require(vectors == count, CONFIGURED, agree, count=count, held=vectors),
        require(end <= LARGE, CAPACITY, sentence, end=end),
    )


def in_small(m: Ila, engine: str, manager: Expr | int, count: Expr) -> Step:
    """Return the diagnostic of vectors of the small buffer that would wrap."""
    end = switch(lift(manager), *(m.r[f"gb_small_base_{k}"] for k in range(8))) + count
    return require(end <= SMALL, CAPACITY, f"{engine} uses the small buffer up to vector {{end}}, which has {SMALL}", end=end)


def control(m: Ila) -> Step:
    """Return the diagnostics of the Control engine and of the elements it drives."""
    s = m.s
    mode, steps, count = s.gb_control_mode[()], s.gb_control_num_timestep_1[()], s.gb_control_num_vector_2[()]
    vectors = [
        _region(m, "control", m.r[f"gb_control_memory_index_{n}"], m.r[f"gb_control_num_vector_{n}"], timesteps)
        for n, timesteps in ((1, steps), (2, steps * (1 + (mode > 0))))
    ]
    decoder = [in_small(m, "control", s.gb_control_memory_index_2[()], count)]
    known_mode = require(mode <= DECODER, CONFIGURED, "mode of control must be 0…3, not {mode}", mode=mode)
    return seq(
        known_mode,
        when(mode == DECODER, seq(*decoder), seq(*vectors)),
        *(element(m, pe, f"control waits for PE{pe}, whose") for pe in range(PES)),
    )


def element(m: Ila, pe: int, started: str) -> Step:
    """Return the diagnostics of the core and the activation unit of one element; `started` says by whom."""
    s, p = m.s, lift(pe)
    valid = s.pe_is_valid[p] & s.act_is_valid[p]
    managers = minimum(maximum(s.pe_num_manager[p], 1), 2)
    return seq(
        require(valid, CONFIGURED, f"{started} core and activation unit are not both configured valid"),
        _program(m, p, pe),
        *(_manager(m, p, pe, k, managers) for k in range(2)),
    )


def undefined_opcodes(m: Ila, p: Expr) -> Expr:
    """Return 1 when the program of an element has an instruction with an undefined opcode."""

    def is_undefined(k: Expr) -> Expr:
        op = m.s.act_vector[p, k % INSTRUCTIONS][4:8]
        return ~any_of(op == value for value in DEFINED) & (k < m.s.act_num_inst[p])

    return reduce("max", is_undefined, INSTRUCTIONS)


def _program(m: Ila, p: Expr, pe: int) -> Step:
    s, count = m.s, m.s.act_num_inst[p]
    slots = s.act_buffer_addr_base[p] + s.act_num_output[p]

    def is_kept(k: Expr) -> Expr:  # LOAD or STORE; what an earlier, longer program has left behind counts for nothing
        op = s.act_vector[p, k % INSTRUCTIONS][4:8]
        return ((op == 1) | (op == 2)) & (k < count)

    uses = reduce("max", is_kept, INSTRUCTIONS)
    return seq(
        require(count <= INSTRUCTIONS, CAPACITY, f"the program of PE{pe} has {{count}} instructions, {INSTRUCTIONS} fit", count=count),
        require(
            undefined_opcodes(m, p) == 0, UNDEFINED,
            f"the program of PE{pe} has an instruction with an undefined opcode (0, 5, 6, 14 or 15)",
        ),
        require(
            (uses == 0) | (slots <= ACT), CAPACITY, f"PE{pe} keeps vectors up to {{slots}} in its activation buffer, which has {ACT}",
            slots=slots,
        ),
    )  # fmt: skip


def _manager(m: Ila, p: Expr, pe: int, k: int, managers: Expr) -> Step:
    """The buffers that one memory manager of an element reads."""
    s, outputs = m.s, m.s.pe_num_output[p]
    rows = s.pe_num_input[p, k] * outputs * (16 - 8 * s.pe_is_cluster[p])
    ends = (
        ("weight", s.pe_base_weight[p, k] + rows, WEIGHT),
        ("input", s.pe_base_input[p, k] + s.pe_num_input[p, k], INPUT),
        ("input", (s.pe_base_bias[p, k] + outputs) * s.pe_is_bias[p], INPUT),
    )
    return seq(
        *(
            require(
                (managers <= k) | (end <= room),
                CAPACITY,
                f"PE{pe} reads its {label} buffer up to vector {{end}}, which has {room}",
                end=end,
            )
            for label, end, room in ends
        )
    )


def pooling(m: Ila) -> Step:
    """Return the diagnostics of LayerReduce."""
    steps, mode = m.s.gb_layer_reduce_num_timestep_1[()], m.s.gb_layer_reduce_mode[()]
    odd = "layer_reduce combines pairs of timesteps: {steps} is odd, and hardware and published model differ there"
    return seq(
        require(mode <= 2, CONFIGURED, "mode of layer_reduce must be 0, 1 or 2, not {mode}", mode=mode),
        require(steps % 2 == 0, CONFIGURED, odd, steps=steps),
        in_large(m, "layer_reduce", maximum(steps, 1)),  # the hardware combines one pair at least
    )


def layer_norm(m: Ila) -> Step:
    """Return the diagnostics of LayerNorm."""
    count = m.s.gb_layer_norm_num_vector_1[()]
    nonzero = require(count >= 1, CONFIGURED, "layer_norm must have at least one vector a timestep, not 0")
    return seq(nonzero, in_large(m, "layer_norm"), *(in_small(m, "layer_norm", k, count) for k in (GAMMA, BETA)))


def attention(m: Ila) -> Step:
    """Return the diagnostics of Attention."""
    s = m.s
    steps, count = s.gb_attention_num_timestep_1[()], s.gb_attention_num_vector_1[()]
    most = f"attention must have 1…{MAX_ROWS} rows, not {{steps}}: the offset of a score has 8 bits"
    return seq(
        require((steps >= 1) & (steps <= MAX_ROWS), CAPACITY, most, steps=steps),
        in_large(m, "attention"),
        in_small(m, "attention", s.gb_attention_memory_index_2[()], count),
        in_small(m, "attention", SCORES, ceil_div(steps, 16) * 4),
    )


def zero_padding(m: Ila) -> Step:
    """Return the diagnostics of ZeroPadding."""
    return in_large(m, "zero_padding", m.s.gb_zero_padding_num_timestep_2[()])
