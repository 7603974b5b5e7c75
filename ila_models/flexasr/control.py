"""FlexASR Control engine: sends timesteps to the processing elements and stores what they return."""

from collections.abc import Callable
from dataclasses import replace

from rewrite_compiler.ila import Bus, Ila, Wait
from rewrite_compiler.lang import NOTHING, Expr, Step, all_of, assign, clamp, lift, loop, select, seq, switch, update, when

from . import limits
from .buffers import INPUT, LANES, large_address, room, small_address
from .config import GB_BASE, PARTITION, PE_BASE, PES, UNIT, is_hardware, trigger
from .element import inputs_before, run_element

DECODER = 3


def declare_control(m: Ila, bus: Bus) -> None:
    """Declare the trigger of the Control engine and, in hardware, the direct start of one element."""
    s = m.s

    def gb_control_start() -> Step:
        """Run num_timestep_1 timesteps of the configured layer on all four processing elements."""
        run = seq(loop(s.gb_control_num_timestep_1[()], lambda k: _timestep(m, k)), _clear_first(m), assign(s.interrupt, 1))
        needs = seq(limits.engine_started(m, "control"), when(s.gb_control_is_valid[()], limits.control(m)))
        return seq(needs, when(s.gb_control_is_valid[()] & _all_ready(m), run))

    m.instruction("gb_control_start", trigger(m, bus, GB_BASE + 0x10))(gb_control_start)
    m.waits.append(Wait("Control", s.gb_control_is_valid[()], "is not configured valid (config_gb_control is_valid)"))
    for pe in range(PES):
        valid = s.pe_is_valid[pe] & s.act_is_valid[pe]
        m.waits.append(Wait("Control", valid, f"waits for PE{pe}, whose core and activation unit are not both configured valid"))
        number = f"waits for PE{pe}, whose program takes another number of core results than the core makes"
        m.waits.append(Wait("Control", _balanced(m, lift(pe)), number))
        m.waits.append(Wait("Control", _goes_on(m, lift(pe)), f"waits for PE{pe}, which stops at an undefined activation instruction"))
        if is_hardware(m):
            _direct_start(m, bus, pe)


def _direct_start(m: Ila, bus: Bus, pe: int) -> None:
    def start() -> Step:
        """Start this element's core and activation unit alone; nothing receives its output vectors."""
        run = run_element(m, lift(pe), lift(1), lambda address, lane: NOTHING)
        cleared = seq(assign(m.s.pe_is_zero_first, 0, pe), assign(m.s.act_is_zero_first, 0, pe))
        needs = limits.element(m, pe, f"PE{pe} is started, but its")
        return seq(needs, when(m.s.pe_is_valid[pe] & m.s.act_is_valid[pe], seq(run, cleared)))

    m.instruction(f"pe{pe}_start", replace(bus, unused_bits=UNIT).access(PE_BASE + pe * PARTITION))(start)


def _all_ready(m: Ila) -> Expr:
    return all_of(m.s.pe_is_valid[pe] & m.s.act_is_valid[pe] & _balanced(m, lift(pe)) & _goes_on(m, lift(pe)) for pe in range(PES))


def _goes_on(m: Ila, pe: Expr) -> Expr:
    """The program comes to its end: in the published ILA no instruction decodes an undefined opcode."""
    return lift(1) if is_hardware(m) else limits.undefined_opcodes(m, pe) == 0


def _balanced(m: Ila, pe: Expr) -> Expr:
    """The program takes exactly as many results as the core makes."""
    consumed = inputs_before(m, pe, m.s.act_num_inst[pe]) * m.s.act_num_output[pe]
    return consumed == m.s.pe_num_output[pe] * m.s.pe_num_manager[pe]


def _timestep(m: Ila, k: Expr) -> Step:
    s = m.s
    mode = s.gb_control_mode[()]
    is_decoder = mode == DECODER
    index_1, index_2 = s.gb_control_memory_index_1[()], s.gb_control_memory_index_2[()]
    t_in, t_out = _timesteps(m, mode, k)
    vectors_1, vectors_2 = s.gb_control_num_vector_1[()], s.gb_control_num_vector_2[()]

    def send(address: Expr, lane: Callable[[Expr], Expr]) -> Step:
        large = update(s.large, LANES, lambda r: ((large_address(m, index_2, t_out, address, vectors_2), r), lane(r)))
        small = update(s.small, LANES, lambda r: ((small_address(m, index_2, address), r), lane(r)))
        return when(is_decoder, small, large)

    def fetch(index: Expr, timestep: Expr, count: Expr, manager: int) -> Step:
        def to_elements(code: Callable[[Expr, Expr], Expr]) -> Step:
            def slot(p: Expr, v: Expr) -> Expr:
                return (s.pe_base_input[p, manager] + v) % room(m, INPUT)

            return update(s.input_buffer, (PES, count, LANES), lambda p, v, j: ((p, slot(p, v), j), code(v, j)))

        from_large = to_elements(lambda v, j: s.large[large_address(m, index, timestep, v, vectors_2 if manager else vectors_1), j])
        from_small = to_elements(lambda v, j: s.small[small_address(m, index, v), j])
        return when(is_decoder, from_small, from_large)

    return seq(
        fetch(index_1, t_in, vectors_1, 0),
        _cleared_registers(m),
        loop(PES, lambda pe: run_element(m, pe, k == 0, send)),
        when(s.gb_control_is_rnn[()], fetch(index_2, t_out, vectors_2, 1)),
    )


def _timesteps(m: Ila, mode: Expr, k: Expr) -> tuple[Expr, Expr]:
    """Input and output timestep: unidirectional, bidirectional forward, backward, decoder."""
    count = m.s.gb_control_num_timestep_1[()]
    if is_hardware(m):
        t = switch(mode, k, 2 * k, _natural(2 * (count - k) - 1), lift(0))
        return select((mode == 1) | (mode == 2), t // 2, t), t
    t = switch(mode, k, 2 * k, _natural(2 * (count - k) + 1), lift(0))
    return t, t


def _natural(x: Expr) -> Expr:
    return clamp(x, 0, None)


def _cleared_registers(m: Ila) -> Step:
    """The published ILA clears the activation registers at every start of an element; the hardware keeps them."""
    if is_hardware(m):
        return NOTHING
    return update(m.s.act_regs, (PES, 4, LANES), lambda p, n, r: ((p, n, r), 0))


def _clear_first(m: Ila) -> Step:
    """is_zero_first holds for the first timestep after configuration only."""
    ran = m.s.gb_control_num_timestep_1[()] > 0
    clear_flags = seq(*(update(flag, PES, lambda p: ((p,), 0)) for flag in (m.s.pe_is_zero_first, m.s.act_is_zero_first)))
    return when(ran, clear_flags)
