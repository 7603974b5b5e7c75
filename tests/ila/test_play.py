"""Columns of raw commands give what the commands one by one give; plain ones run in one compiled loop."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError, UsageError
from rewrite_compiler.ila import Bits, Bus, Ila, mmio
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila.simulation import batch_decoder as playing
from rewrite_compiler.ila.simulation.batch_decoder import decoder_of, is_plain
from rewrite_compiler.ila.simulation.instruction_families import families, plain_of
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila.traces.trace import columns_of
from rewrite_compiler.ila_models import flexasr, hlscnn
from rewrite_compiler.lang import Array, Step, assign, reduce_sum, require, seq, update, wrap
from rewrite_compiler.readings.native import jit as native_jit
from rewrite_compiler.readings.native import printer as native


def small(*, always: bool = False) -> Ila:
    """Two memories, a register, and a sum that is started."""
    m = Ila("small")
    bus = mmio(m)
    for name in ("left", "right"):
        m.memory(name, (64, 16), 8)
    m.memory("total", (), 32)
    m.register("scale", 8, reset=1)
    for n, name in enumerate(("left", "right")):
        memory, base = m.states[name].leaf, 0x1000 * (n + 1)

        def store(index: Array, vector: Array, memory: object = memory) -> Step:
            """Store a vector."""
            kept = update(memory, 16, lambda j: ((index[()], j), vector[j]))  # type: ignore[arg-type]
            return seq(require(index[()] < 60, "I103", "vector {index}", always=always, index=index[()]), kept)

        m.instruction(f"store_{name}", bus.write_range(base, 64), lanes="vector")(store)
        match = bus.read_range(base, 64)
        at = match.operands["index"].leaf
        m.readback(f"load_{name}", match, lambda j, memory=memory, at=at: memory[at[()], j])  # type: ignore[misc]
    m.config("set_scale", bus.write(0x10), {"scale": Bits(0, 7)})
    m.instruction("run", bus.write(0x20))(
        lambda: assign(m.s.total, wrap(reduce_sum(lambda i, j: m.s.left[i, j] * m.s.right[i, j], (64, 16)) * m.s.scale[()], 32, False))
    )
    m.readback("load_total", bus.read(0x30), lambda j: (m.s.total[()] >> 8 * j) % 256, lanes=4)
    return m


def commands(model: Ila, count: int, seed: int, skipped: tuple[str, ...] = ()) -> list[dict[str, int]]:
    """Return random commands, most of them like the one before; some are of no instruction."""
    random = np.random.default_rng(seed)
    known = [i for i in model.instructions.values() if not any(s in i.name for s in skipped)]
    found, chosen = [], known[0]
    for _ in range(count):
        if random.random() < 0.2:
            chosen = known[int(random.integers(len(known)))]
        given = {}
        for name, o in chosen.operands.items():
            low, high = o.leaf.interval
            ends = (low, min(high, 4095)) if random.random() < 0.7 else (max(low, high - 20), high)
            given[name] = int.from_bytes(random.bytes(16), "little") if o.leaf.shape else int(random.integers(*ends, endpoint=True))
        found.append(assemble(chosen, **given) if random.random() < 0.95 else {"wr": 1, "addr": 0x7FFFFFF0})
    return found


def one_by_one(sim: Simulator, stream: list[dict[str, int]], width: int) -> list[bytes]:
    return [(sim.command(c) or 0).to_bytes(width, "little") for c in stream]


@pytest.mark.parametrize("reading", ["native", "arrays", "oracle"])
def test_columns_are_the_commands(reading: str) -> None:
    model = small()
    stream = commands(model, 500, seed=3)
    left, right = Simulator(model, reading=reading), Simulator(model, reading="oracle")
    gives = left.play(columns_of(model, stream))
    assert [bytes(x) for x in gives] == one_by_one(right, stream, gives.shape[1])
    assert gives.shape[1] == 16
    assert left.executed == right.executed
    for name in model.states:
        assert (left.state(name) == right.state(name)).all(), name


@pytest.mark.parametrize("turns", [3, 1 << 20])
def test_configuration_between_data(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """Commands of the two kinds in turns: by one loop each, and by one for all of them when there were enough turns."""
    monkeypatch.setattr(playing, "PATIENCE", 2)
    monkeypatch.setattr(playing, "TURNS", turns)
    model, random = small(), np.random.default_rng(2)
    known = [model.instructions[name] for name in ("set_scale", "store_left", "load_right", "store_right")]
    stream = []
    for n in range(160):
        for _ in range(40 if n % 20 == 0 else 1):
            i = known[n % 4]
            numbers = {k: int(random.integers(*o.leaf.interval, endpoint=True)) for k, o in i.operands.items()}
            stream.append(assemble(i, **numbers))
    left, right = Simulator(model, reading="native"), Simulator(model, reading="oracle")
    gives = left.play(columns_of(model, stream))
    assert [bytes(x) for x in gives] == one_by_one(right, stream, gives.shape[1])
    assert all((left.state(name) == right.state(name)).all() for name in model.states)
    assert (left.loop_switches >= turns) == (turns == 3)


def test_instructions_of_one_form_are_one_family() -> None:
    """Four elements, each with two memory managers: 25 forms of FlexASR's 80 plain instructions are left."""
    model = flexasr.build()
    chosen = [i for i in model.instructions.values() if is_plain(model, i)]
    found = families([plain_of(i, playing._updates(i.update) or (), is_range=False) for i in chosen])
    assert Counter(len(f.members) for f in found) == {1: 11, 4: 10, 5: 1, 8: 3}
    (pe, manager) = next(f for f in found if len(f.members) == 8).form.stores[0].address
    assert (str(pe), str(manager)) == ("member_of_8[] // 2", "member_of_8[] % 2")


def test_numbers_that_do_not_lie_evenly_are_no_family() -> None:
    m = Ila("uneven")
    bus = mmio(m)
    m.memory("left", (64, 16), 8)
    for n, base in enumerate((0x1000, 0x3000, 0x4000)):
        store = lambda index, vector: update(m.s.left, 16, lambda j: ((index[()], j), vector[j]))  # noqa: E731
        m.instruction(f"store_{n}", bus.write_range(base, 64), lanes="vector")(store)
    plain = [plain_of(i, playing._updates(i.update) or (), is_range=True) for i in m.instructions.values()]
    assert [f.member for f in families(plain)] == [None] * 3
    assert [len(f.members) for f in families(plain[1:])] == [2]


def test_which_commands_are_plain() -> None:
    m = hlscnn.build("ext8")
    plain = [i.name for i in m.instructions.values() if is_plain(m, i)]
    assert [name for name in plain if not name.startswith("cfg_wr_")] == ["vir_mem_wr", "spad0_data_rd", "spad1_data_rd"]
    assert len(plain) == 20
    m = flexasr.build()
    plain = [i.name for i in m.instructions.values() if is_plain(m, i)]
    assert {n.split("_", 1)[1].split("_")[0] for n in plain} == {"config", "gb", "core", "act", "read"}
    assert not [n for n in plain if "start" in n]


@pytest.mark.parametrize("name", ["hlscnn", "flexasr"])
def test_commands_of_a_shipped_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes of configuration, and bytes that go on at the start of a memory, too; machine code for all of them from the fourth on."""
    monkeypatch.setattr(playing, "PATIENCE", 4)
    model = hlscnn.build("ext8", soc_bytes=1 << 13, spad_bytes=1 << 11) if name == "hlscnn" else flexasr.build()
    stream = commands(model, 500, seed=5, skipped=("trigger", "start"))
    left, right = Simulator(model, reading="native"), Simulator(model, reading="oracle")
    gives = left.play(columns_of(model, stream))
    assert [bytes(x) for x in gives] == one_by_one(right, stream, gives.shape[1])
    assert all((left.state(name) == right.state(name)).all() for name in model.states)
    assert left.executed == right.executed
    assert decoder_of.cache_info().currsize >= 2


@pytest.mark.parametrize("reading", ["arrays", "native"])
def test_runs_of_one_instruction(reading: str) -> None:
    """Reads that keep what they give, stores that go on at the start of a memory, and configuration, each many times in a row."""
    model, random = hlscnn.build("ext8", soc_bytes=1 << 13, spad_bytes=1 << 11), np.random.default_rng(8)
    stream = []
    for name in ("vir_mem_wr", "cfg_wr_soc_mem_base", "spad1_data_rd", "vir_mem_wr", "spad0_data_rd", "spad1_data_rd"):
        i = model.instructions[name]
        for _ in range(int(random.integers(20, 50))):
            given = {n: int.from_bytes(random.bytes(16), "little") for n, o in i.operands.items() if o.leaf.shape}
            numbers = {n: int(random.integers(*o.leaf.interval, endpoint=True)) for n, o in i.operands.items() if not o.leaf.shape}
            stream.append(assemble(i, **given, **numbers))
    left, right = Simulator(model, reading=reading), Simulator(model, reading="oracle")
    for sim in (left, right):
        sim.memories[model.s.spad1].data[...] = np.random.default_rng(1).integers(0, 256, 1 << 11)
    gives = left.play(columns_of(model, stream))
    assert [bytes(x) for x in gives] == one_by_one(right, stream, gives.shape[1])
    assert all((left.state(name) == right.state(name)).all() for name in model.states)
    assert left.executed == right.executed


def test_more_commands_than_a_piece_holds() -> None:
    model = small()
    count = playing.PIECE + 77
    rows = np.random.default_rng(1).integers(0, 256, (count, 16))
    places = np.arange(count) % 64
    columns = {"wr": np.ones(count), "rd": np.zeros(count), "addr": 0x1000 + 16 * places, "data": rows}
    sim = Simulator(model, reading="native")
    sim.play(columns)
    assert (sim.state("left")[places[-64:]] == rows[-64:]).all()
    assert sim.executed == count


def test_what_does_more_than_store_is_not_plain() -> None:
    names = {always: [i.name for i in m.instructions.values() if is_plain(m, i)] for always, m in ((a, small(always=a)) for a in (0, 1))}
    assert names == {
        0: ["store_left", "load_left", "store_right", "load_right", "set_scale"],
        1: ["load_left", "load_right", "set_scale"],
    }
    assert decoder_of(Ila("empty")) is None


def test_a_strict_device_says_what_single_commands_say() -> None:
    model = small()
    with pytest.raises(SpecError) as refusal:
        Simulator(model, reading="native", strict=True).play(columns_of(model, [assemble(model.instructions["store_left"], index=61)]))
    assert refusal.value.problem.sentence == "vector 61"


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"wr": [1, 1], "addr": [0]}, "the column addr must be (2,) numbers in 0…4294967295"),
        ({"wr": [2]}, "the column wr must be (1,) numbers in 0…1"),
        ({"wr": [1], "adr": [0]}, 'small has no input "adr"'),
    ],
)
def test_columns_that_are_no_commands(columns: dict[str, list[int]], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        Simulator(small(), reading="native").play(columns)
    assert refusal.value.problem.sentence == sentence


def test_names_that_a_model_does_not_have() -> None:
    sim = Simulator(small())
    for call, sentence in (
        (lambda: sim.issue("set_scal", scale=1), 'error[F203]: small has no instruction "set_scal"\n  help: did you mean "set_scale"?'),
        (lambda: sim.block("store", 1, {}), 'error[F203]: small has no instruction "store"\n  help: flexmatch show ila small lists them'),
        (lambda: sim.state("lift"), 'error[F203]: small has no state "lift"\n  help: did you mean "left"?'),
    ):
        with pytest.raises(UsageError) as refusal:
            call()
        assert str(refusal.value) == sentence


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results, and nothing compiled in this process."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    decoder_of.cache_clear()
    native_jit.compile_text.cache_clear()
    return tmp_path


def test_a_decoder_is_found_by_its_terms(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model of the same terms has its decoder without lowering; one that differs in a constant has its own."""
    stream = commands(small(), 300, seed=9)
    expected = Simulator(small(), reading="oracle").play(columns_of(small(), stream))
    assert decoder_of(small()) is not None
    lowered: list[object] = []
    real = native.lower_step
    monkeypatch.setattr(native, "lower_step", lambda *given, **options: (lowered.append(given), real(*given, **options))[1])
    again = small()
    made = decoder_of(again)
    assert made is not None
    sim = Simulator(again, reading="native")
    plain = [n for n, c in enumerate(stream) if (i := sim.decode(c)) is not None and is_plain(again, i)]
    columns, gives = columns_of(again, [stream[n] for n in plain]), np.zeros((len(plain), 16), np.uint8)
    assert playing._run_loop(sim, made, playing._checked_columns(again, columns)[0], gives, 0) == len(plain)
    assert not lowered
    assert (gives == expected[plain]).all()
    other = small()
    other.config("set_other", Bus(other).write(0x50), {"other": Bits(0, 7)})
    assert decoder_of(other) is not None
    assert len(lowered) == 1


def test_a_decoder_whose_code_is_damaged_is_made_again(kept: Path) -> None:
    for folder in ("steps", "objects"):
        assert decoder_of(small()) is not None
        (entry,) = (kept / folder).iterdir()
        whole = entry.read_bytes()
        entry.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        decoder_of.cache_clear()
        native_jit.compile_text.cache_clear()
        assert decoder_of(small()) is not None
        assert entry.read_bytes() == whole


@pytest.mark.parametrize("reading", ["native", "arrays"])
def test_repeated_reads_see_what_the_commands_before_them_wrote(reading: str) -> None:
    """A read that counts, forty times."""
    model = small()
    total = model.states["total"].leaf
    model.instructions["load_total"] = replace(model.instructions["load_total"], update=assign(total, wrap(total[()] + 3, 32, False)))
    stream = [assemble(model.instructions["load_total"])] * 40
    found = Simulator(model, reading=reading).play(columns_of(model, stream))
    assert [bytes(x) for x in found] == one_by_one(Simulator(model, reading="oracle"), stream, found.shape[1])
    assert len({bytes(x) for x in found}) == 40
