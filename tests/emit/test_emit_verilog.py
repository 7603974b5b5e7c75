"""Generated Verilog does what the simulators do, and its text is proved to be what the accelerator's model says."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import icarus
import numpy as np
import pytest
import z3
from board import toy_text
from command import flexmatch, refused
from vectors import arrays, traces

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.verbs.emit_verilog import SIMULATE
from rewrite_compiler.compile import calibrated, compile_model
from rewrite_compiler.emit.mmio.trace import traces_of
from rewrite_compiler.emit.rtl import readback_check
from rewrite_compiler.emit.rtl.design import design
from rewrite_compiler.emit.rtl.emit import SHOWN, verilog_device
from rewrite_compiler.emit.rtl.readback_check import PartVerdict, _filling, check_verilog
from rewrite_compiler.emit.rtl.rom import filled_entries
from rewrite_compiler.errors import InputError
from rewrite_compiler.ila import Ila, assemble, ila
from rewrite_compiler.ila.traces.trace import Commands
from rewrite_compiler.readings.smt.solver import Verdict
from rewrite_compiler.readings.verilog.reader import Expression, Statement, read_verilog
from rewrite_compiler.readings.verilog.semantics import Machine
from rewrite_compiler.target import load_target

SHIPPED = {"flexasr": 125, "hlscnn": 26, "vta": 13}  # instructions with a register-level form


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("toy") / "toy.py"
    path.write_text(toy_text(), "utf-8")
    return load_target(str(path))


# FlexASR's instructions of several clocks whose every clock is proved; of others the clocks that multiply rows are not decided in a minute
DECIDED = ("gb_layer_reduce_start", "gb_zero_padding_start")


# -- constants


@pytest.mark.parametrize(
    ("text", "value"), [("4'sd11", -5), ("4'sb1011", -5), ("4'shb", -5), ("5'sd11", 11), ("-4'sd11", 5), ("4'd11", 11)]
)
def test_signed_constants_are_read_as_verilog_has_them(text: str, value: int, tmp_path: Path) -> None:
    """In a table's entry, in an initial value and in an expression: IEEE 1364 and Icarus say so."""
    source = (
        "module m(input clock, output reg signed [7:0] y);\nreg signed [7:0] rom [0:1];\n"
        f"initial begin rom[0] = {text}; rom[1] = 8'sd0; end\nalways @(posedge clock) begin y = {text}; end\nendmodule\n"
    )
    m = read_verilog(source)
    (start,) = m.initial
    assert filled_entries(start.bodies[0], {"rom": 2})["rom"].tolist() == [value, 0]
    machine = Machine(dict(m.words), {}, 1)
    machine.run([m.always])
    assert z3.simplify(machine.values["y"]).as_signed_long() == value
    assert _filling(Statement("set", 1, (Expression("name", name="y"), start.bodies[0][0].terms[1]))) == ("y", 0, value)
    icarus.needed()
    bench = source.replace("endmodule", 'initial begin #1 $display("%0d", rom[0]); $finish; end\nendmodule')
    (tmp_path / "m.v").write_text(bench)
    subprocess.run(["iverilog", "-o", tmp_path / "m", tmp_path / "m.v"], check=True)
    assert int(subprocess.run([tmp_path / "m"], check=True, capture_output=True, text=True).stdout.split()[0]) == value


def test_a_range_of_bits_has_no_negative_end() -> None:
    with pytest.raises(InputError, match="the higher first"):
        read_verilog("module m(input clock, output reg y); always @(posedge clock) begin y = y[4'sd11:0]; end endmodule")


# -- simulated by Icarus

LONG = re.compile(rb"( m_\w+ \[0:|\.WORDS\()\d{7,}(\]|\))")  # the words of a memory that the simulator would fill for seconds


def compared(m: Ila, commands: list[dict[str, int]], folder: Path) -> int:
    """Run commands on both, instructions that the text leaves out on neither; return how many reads there were."""
    return compared_on(*compiled(m, folder), m, commands)


def compiled(m: Ila, folder: Path) -> tuple[Path, Collection[str]]:
    """Return the compiled bench of a model, and the instructions that the text leaves out."""
    made = verilog_device(m)
    return icarus.compiled({path: LONG.sub(rb"\g<1>131072\2", data) for path, data in made.files.items()}, folder), made.omitted


def compared_on(bench: Path, omitted: Collection[str], m: Ila, commands: list[dict[str, int]]) -> int:
    """Run commands on a compiled bench and on the simulator; return how many reads there were."""
    answers, state = icarus.run(bench, m, commands)
    sim, names = m.simulator(reading="oracle"), [None, *m.instructions]
    reads = 0
    for command, (number, outside, result) in zip(commands, answers, strict=True):
        name = names[number]
        assert bool(outside) == (name in omitted), command
        if name is None or outside:
            continue
        found = sim.command(command)
        reads += found is not None
        assert result == (found or 0), (name, command)
    held = {}
    for n in (n for n, s in m.states.items() if n not in m.externals and math.prod(s.leaf.shape) <= SHOWN):
        flat = sim.state(n).reshape(-1)
        held.update({(n, at): int(flat[at]) % (1 << m.states[n].bits) for at in np.flatnonzero(flat).tolist()})
    assert state == held
    return reads


def commands_of(name: str, trace: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Yield the bus commands of a golden trace."""
    if name == "flexasr":
        for kind, *rest in trace["commands"]:
            if kind in "WR":
                word = int(rest[1], 16) if kind == "W" else 0
                yield {"wr": int(kind == "W"), "rd": int(kind == "R"), "addr": int(rest[0], 16), "data": word}
        return
    for mode, address, data, virtual in trace["trace"]:
        yield {"wr": int(mode == "W"), "rd": int(mode == "R"), "addr": int(address, 16), "data": int(data, 16), "virtual": int(virtual)}


def test_the_toy_runs_an_inference_in_icarus(toy: Any, tmp_path: Path) -> None:
    """The very commands of a trace; its recorded reads come back."""
    icarus.needed()
    a = find_application("digits_mlp")
    with np.load(a.calibration) as data:
        samples = {"image": data["image"].reshape(-1, 1, 1, 8, 8).astype(np.float32)}
    plan = calibrated(compile_model(a.model, [toy]), samples, "calibration.npz", "")
    (emitted,) = traces_of(plan, {"image": samples["image"][3]}).values()
    rows = [row for item in emitted.trace.items if isinstance(item, Commands) for row in item.rows()]
    m = toy.ila()
    assert compared(m, [dict(c) for c, _ in rows], tmp_path / "v") == sum(gives is not None for _, gives in rows) > 100
    answers, _ = icarus.run(tmp_path / "v" / "bench", m, [c for c, _ in rows])
    assert all(gives is None or gives == found for (_, gives), (_, _, found) in zip(rows, answers, strict=True))


def test_a_golden_trace_of_flexasr_in_icarus(tmp_path: Path) -> None:
    """Configuration and data of a recorded trace leave the same registers and memories as in the simulator."""
    icarus.needed()
    trace = min(traces("flexasr").values(), key=lambda t: len(t["commands"]))
    compared(ila("flexasr"), list(commands_of("flexasr", trace))[:1500], tmp_path)


@pytest.mark.parametrize("name", traces("hlscnn"))
def test_golden_convolutions_in_icarus(name: str, tmp_path: Path) -> None:
    """The text takes taps in the order of the device, the simulator whole arrays; each output that the design gave is read back."""
    icarus.needed()
    trace, want = traces("hlscnn")[name], arrays("hlscnn", "results.npz")[f"{name}.spad1_after"]
    m, commands = ila("hlscnn", revision=trace["design"]), list(commands_of("hlscnn", trace))
    assert compared(m, commands, tmp_path) == sum(c["rd"] for c in commands)
    answers, _ = icarus.run(tmp_path / "bench", m, commands)
    read = {(c["addr"] - trace["spad1_base"]) // 16: a[2] for c, a in zip(commands, answers, strict=True) if c["rd"]}
    assert read == {n: int.from_bytes(want[n].astype("<i2").tobytes(), "little") for n in read}


DESIGN = """
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import Table, array, fold, let, sat, signed, update, wrap

N = 8
square = Table("square", lambda x: x * x >> 4, (-128, 127))
offset = Table("offset", lambda a, b: a - b, (-2, 1), (3, 4))
model = Ila("rows")
bus = mmio(model, address_bits=16, data_bytes=8)
x, y, z = (model.memory(n, (N,), 8) for n in "xyz")
model.config("config", bus.write(0), bit_fields("3:0 length"))
store = model.instruction("store_x", bus.write_range(0x1000, 1, 8), lanes="vector")
store(lambda index, vector: update(x, N, lambda j: (j, vector[j])))
length = model.s.length[()] % (N + 1)


def total(i):
    return fold(length, 0, lambda k, t: sat(t + signed(x[k], 8) + signed(x[(i + k) % N], 8), 20), (-(1 << 19), (1 << 19) - 1))


@model.instruction("correlate", bus.write(0x10))
def correlate():
    return update(y, length, lambda i: (i, wrap(total(i) >> 8, 8, False)))


@model.instruction("squares", bus.write(0x18))
def squares():
    return update(y, N, lambda i: (i, wrap(square(signed(x[i], 8)) + offset(signed(x[i] % 4, 2), x[i] % 2 + 3), 8, False)))


@model.instruction("reverse", bus.write(0x20))
def reverse():
    return update(x, length, lambda i: (i, x[(N - 1 - i) % N]))


@model.instruction("halves", bus.write(0x28))
def halves():
    half = array(lambda i: wrap(total(i) >> 9, 8, False), length)
    return let(half, lambda h: update(z, length, lambda i: (i, wrap(h[i] + x[i], 8, False))), "half")


for name, memory, base in (("load_x", x, 0x2000), ("load_y", y, 0x3000), ("load_z", z, 0x4000)):
    model.instruction(name, bus.read_range(base, 1, 8))(lambda index, memory=memory: array(lambda j: memory[j], N))
"""


@pytest.fixture(scope="module")
def rows() -> Ila:
    space: dict[str, Any] = {}
    exec(DESIGN, space)
    model: Ila = space["model"]
    return model


def test_folds_tables_arrays_and_overlaps_of_a_users_design(rows: Ila, tmp_path: Path) -> None:
    """Folds and loops as long as a register says, tables, arrays computed on the way, an update that reads what it writes."""
    icarus.needed()
    draw = np.random.default_rng(4)
    commands = list[dict[str, int]]()
    for length in (0, 1, 5, 8):
        data = int.from_bytes(draw.integers(0, 256, 8, dtype=np.uint8).tobytes(), "little")
        writes = [(0, length), (0x1000, data), *((a, 0) for a in (0x10, 0x18, 0x20, 0x28))]
        commands += [{"wr": 1, "rd": 0, "addr": a, "data": d} for a, d in writes]
        commands += [{"wr": 0, "rd": 1, "addr": a, "data": 0} for a in (0x2000, 0x3000, 0x4000)]
    assert compared(rows, commands, tmp_path) == 12


def test_a_users_design_is_proved_and_a_wrong_table_is_not(rows: Ila) -> None:
    made = verilog_device(rows)
    assert not made.omitted
    assert set(made.clock_counts) == {"reverse", "halves"}
    text = made.files["rows_device.v"].decode()
    assert {j.verdict.outcome for j in check_verilog(text, rows)} == {"proved"}
    for written, planted in (
        ("rom_square[1] = 11'sd1008;", "rom_square[1] = 11'sd1007;"),
        ("        rom_square[40] = 10'sd484;\n", ""),
        ("rom_offset[0] =", "rom_offset[1] ="),
        ("= rom_square[", "= rom_offset["),
    ):
        assert written in text, written
        outcomes = [j.verdict.outcome for j in check_verilog(text.replace(written, planted, 1), rows, seconds=3.0)]
        assert "refuted" in outcomes, planted


@pytest.mark.shared
def test_triggers_of_flexasr_in_icarus(tmp_path: Path) -> None:
    """Layers, recurrent and not, pooling, normalisation and attention, as recorded from the design: every trigger is taken."""
    icarus.needed()
    made = verilog_device(ila("flexasr"))
    bench, names = icarus.compiled(made.files, tmp_path), [None, *ila("flexasr").instructions]
    triggers = set[str]()
    for trace in ("linear_16x64_T1_bias", "bidir_fwd_32x64_T3", "addpool_nv3_T36", "layernorm_nv1_T1", "attention_nv1_T16"):
        commands = list(commands_of("flexasr", traces("flexasr")[trace]))
        answers, _ = icarus.run(bench, ila("flexasr"), commands)
        simulator = ila("flexasr").simulator()
        for command, (number, outside, result) in zip(commands, answers, strict=True):
            assert not outside
            assert result == (simulator.command(command) or 0), (trace, command)
            triggers |= {str(names[number])} if str(names[number]).endswith("_start") else set()
    assert triggers == {"gb_control_start", "gb_layer_reduce_start", "gb_layer_norm_start", "gb_attention_start"}


@pytest.mark.parametrize("trace", ["linear_16x64_T1_bias", "lstm_32x64_T2_with_state"])
def test_processing_elements_started_alone_in_icarus(trace: str, tmp_path: Path) -> None:
    """Configured as recorded, with other inputs: registers and buffers of all elements are afterwards those of the simulator."""
    icarus.needed()
    m, draw = ila("flexasr"), np.random.default_rng(3)
    recorded = [c for c in commands_of("flexasr", traces("flexasr")[trace]) if c["wr"]]
    stores = [
        assemble(m.instructions[f"pe{n}_core_store_input_buffer"], index=k, vector=int.from_bytes(draw.bytes(16), "little"))
        for n in range(4)
        for k in range(8)
    ]
    commands = [*recorded, *stores, *(assemble(m.instructions[f"pe{n}_start"]) for n in range(4))]
    simulator, states = m.simulator(), ("act_regs", "act_buffer", "input_buffer")
    for command in commands[:-4]:
        simulator.command(command)
    before = simulator.state("act_regs").copy()
    for command in commands[-4:]:
        simulator.command(command)
    assert (simulator.state("act_regs") != before).any(axis=(1, 2)).all()
    _, state = icarus.run(icarus.compiled(verilog_device(m).files, tmp_path), m, commands)
    for name in states:
        flat = simulator.state(name).reshape(-1)
        want = {at: int(flat[at]) % (1 << m.states[name].bits) for at in np.flatnonzero(flat).tolist()}
        assert {at: word for (n, at), word in state.items() if n == name} == want


# -- proved from the text


@pytest.mark.parametrize("name", ["toy", "hlscnn", "vta", "flexasr"])
def test_every_part_of_the_text_is_proved(name: str, toy: Any) -> None:
    m = toy.ila() if name == "toy" else ila(name)
    made = verilog_device(m)
    assert len(made.instructions) == SHIPPED.get(name, len(m.instructions))
    (text,) = [data.decode() for path, data in made.files.items() if path.endswith("_device.v")]
    numbered = {f"clock {n} of {p.name}": p.name for n, p in design(m).clocks.items()}
    expected = {part for part, instruction in numbered.items() if name != "flexasr" or instruction in DECIDED}
    only = {"decode", "others", "nowhere", *made.instructions, *expected} if name == "flexasr" else ()
    found = {j.part: j.verdict.outcome for j in check_verilog(text, m, rounds=4, only=only)}
    clocks = {part for part in found if part.startswith("clock ")}
    assert set(found) - clocks == {"words", "decode", "others", *made.instructions, *(["nowhere"] if clocks else [])}
    assert clocks == expected
    assert len(numbered) == sum(made.clock_counts.values())
    assert set(found.values()) == {"proved"}


FAULTS = (  # what is written, what stands there instead
    ("input [15:0] i_addr", "input [14:0] i_addr"),
    (".WORDS(512)", ".WORDS(511)"),
    ("wire [7:0] m_w_rd", "wire signed [7:0] m_w_rd"),
    (".FILLED(1)", ".FILLED(0)"),
    (".START(0)", ".START(1)"),
    ("            m_shift = 0;\n", ""),
    ("outside = 0;\n            fault = 0;\n            begin", "outside = 1;\n            fault = 0;\n            begin"),
    ("executed = found;", "executed = 0;"),
    ("executed = found;", "executed <= found;"),
    ("11'sd512 <= w", "11'sd511 <= w"),
    ("< 12'sd1536", "<= 12'sd1536"),
    ("found = 3'sd3;", "found = 3'sd2;"),
    ("2'sd1 - w57", "2'sd0 - w57"),
    ("case (found)\n            1: begin : do_config", "case (found)\n            7: begin : do_config"),
    ("m_length = t1", "m_shift = t1"),
    (" >>> w21", " >> w21"),
    ("$signed(w44[7:0])", "$signed(w44[6:0])"),
    ("w23 + w30", "w23 - w30"),
    ("w50 == 5'sd8", "w50 == 5'sd7"),
    ("w34 == w19", "w33 == w19"),
    ("2'sd1 <<< w21", "2'sd1 <<< w19"),
    ("= m_w_rd", "= m_x_rd"),
    ("reg signed [19:0] r1_20s", "reg signed [15:0] r1_20s"),
    ("* 5'sd8", "* 5'sd9"),
    ("result[i", "result[8 * i"),
    ("outside = 1;\n            end\n            endcase", "outside = 0;\n            end\n            endcase"),
    ("0: begin : none\n", "0: begin : none\n            m_length = 0;\n"),
    ("m_x_we <= 1", "m_x_we <= 0"),
    ("m_x_we <= 1", "m_w_we <= 1"),
    ("m_x_we <= 0;\n", ""),
    ("m_y_wa <=", "m_y_wa ="),
    ("m_x_ra =", "m_y_ra ="),
    ("m_x_ra =", "m_x_ra <="),
    ("m_x_wa <= w5 + w3", "m_x_wa <= w5 - w3"),
    ("m_y_wd <= w29[7:0]", "m_y_wd <= m_y_wd"),
    ("= m_y_rd;", "= m_y[0];"),
    (".read_data(m_x_rd)", ".read_data(m_w_rd)"),
    (".write(m_x_we)", ".write(m_w_we)"),
    ("write && write_address == read_address ? write_data : words[read_address]", "words[read_address]"),
    ("at = w7 ? 4'sd5", "at = w7 ? 4'sd6"),
)


@pytest.fixture(scope="module")
def toy_verilog(toy: Any) -> str:
    return verilog_device(toy.ila(), "toy").files["toy_device.v"].decode()


@pytest.mark.parametrize(("written", "planted"), FAULTS)
def test_a_fault_planted_in_the_text_is_found(written: str, planted: str, toy: Any, toy_verilog: str) -> None:
    assert written in toy_verilog
    text = toy_verilog.replace(written, planted, 1)
    outcomes = (j.verdict.outcome for j in check_verilog(text, toy.ila(), rounds=1, seconds=3.0))
    assert next((o for o in outcomes if o != "proved"), "") == "refuted"


def test_a_text_of_another_form_is_refused_with_its_line(toy: Any, toy_verilog: str) -> None:
    for written, planted, sentence in (
        ("posedge clock", "negedge clock", '"posedge" must stand here, not "negedge"'),
        ("executed = found;", "executed found;", '"=" must stand here, not "found"'),
        ("if (reset)", "if (valid)", "the module must have if (reset) here"),
        ("    end\nendmodule", "endmodule", '"=" must stand here, not "the end of the file"'),
    ):
        with pytest.raises(InputError) as caught:
            list(check_verilog(toy_verilog.replace(written, planted, 1), toy.ila(), "toy.v"))
        line = toy_verilog[: toy_verilog.index(written)].count("\n") + 1
        problem = caught.value.problem
        assert (problem.code, problem.sentence) == ("F103", sentence)
        assert abs(int(problem.place.removeprefix("toy.v:")) - line) <= 1


def test_the_command_writes_the_text_and_proves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(toy_text(), "utf-8")
    answer = flexmatch("emit", "verilog", "./toy.py")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[:2] == ["verilog   toy: 5 of 5 instructions", "clocks    store_x takes several clocks, of 2 kinds"]
    assert answer.out.splitlines()[-2:] == ["wrote     toy_device.v", "wrote     toy_bench.v"]
    answer = flexmatch("emit", "check", "toy_device.v", "--accel", "./toy.py")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[0] == "proved    23 parts of toy_device.v are what toy says"
    wrong = (tmp_path / "toy_device.v").read_text().replace("m_length = t1", "m_length = 0")
    (tmp_path / "wrong.v").write_text(wrong)
    answer = flexmatch("emit", "check", "wrong.v", "--accel", "./toy.py")
    assert answer.code == 1
    assert answer.err.startswith("wrong.v: error[I115]: config is not the model's, for example for i_data = ")
    refused(
        flexmatch("emit", "check", "wrong.v"),
        2,
        "error[F203]: a Verilog text is checked against one accelerator\n  help: flexmatch emit check FILE.v --accel NAME",
    )


def test_what_is_not_decided_is_counted_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither proved nor refuted: another sentence than for what differs, and a difference is named first."""
    monkeypatch.chdir(tmp_path)
    Path("d.v").write_text("module")
    verdicts = [
        PartVerdict("words", Verdict("proved")),
        *(PartVerdict(f"clock {n} of a", Verdict("unknown", reason="timeout")) for n in range(5)),
    ]
    monkeypatch.setattr(readback_check, "check_verilog", lambda *_: iter(verdicts))
    open_clocks = "clock 0 of a, clock 1 of a, clock 2 of a, 2 more"
    said = f"d.v: error[I115]: 1 of 6 parts are proved and none is refuted, but not decided are {open_clocks}: timeout"
    refused(flexmatch("emit", "check", "d.v", "--accel", "vta"), 1, f"{said}\n  help: {SIMULATE}")
    verdicts.append(PartVerdict("decode", Verdict("refuted", reason="it differs")))
    assert "decode is not the model's: it differs" in flexmatch("emit", "check", "d.v", "--accel", "vta").err
