"""Traces of a plan: what is emitted is what was simulated, in every form and in parts; what differs is found."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from command import Answer, flexmatch, refused

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.schemas import schema_of
from rewrite_compiler.compile import read_plan
from rewrite_compiler.emit.mmio.recorder import PHASES
from rewrite_compiler.emit.mmio.replay import replay
from rewrite_compiler.emit.mmio.trace import costs, merged_trace, part_of, traces_of
from rewrite_compiler.ila import Ila, ila
from rewrite_compiler.ila.traces.trace import Commands, Section, Trace
from rewrite_compiler.ila.traces.writer import to_json_lines

TARGETS = ("flexasr", "vta")
APP = find_application("digits_mlp")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits.onnx, test.npz, plans for two accelerators and one without formats."""
    folder = tmp_path_factory.mktemp("emit")
    for source, name in ((APP.model, "digits.onnx"), (APP.data, "test.npz"), (APP.calibration, "calibration.npz")):
        shutil.copy(source, folder / name)
    back = os.getcwd()
    os.chdir(folder)
    try:
        for target in TARGETS:
            assert flexmatch("digits.onnx", "--accel", target, "-q", "--calibrate", "calibration.npz").code == 0
        assert flexmatch("digits.onnx", "--accel", "vta", "-q", "-o", "bare").code == 0
    finally:
        os.chdir(back)
    return folder


@pytest.fixture
def folder(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(prepared)
    before = set(os.listdir(prepared))
    yield prepared
    for name in set(os.listdir(prepared)) - before:
        os.unlink(prepared / name)


def sample(n: int) -> dict[str, Any]:
    with np.load(APP.data) as data:
        return {"image": data["image"][n].reshape(1, 1, 8, 8).astype(np.float32)}


@cache
def emitted(folder: Path, target: str, n: int) -> Trace:
    return traces_of(read_plan(folder / f"digits.{target}.json"), sample(n), about=f"sample {n}")[target].trace


def model(trace: Trace) -> Ila:
    return ila(trace.header.target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_trace_replays_on_the_oracle(target: str, folder: Path) -> None:
    """The generated Python, one command at a time, gives what the numpy simulator recorded."""
    trace = emitted(folder, target, 0)
    done = replay(trace, model(trace), reading="oracle")
    assert (done.commands, done.different) == (trace.commands, 0)
    assert done.compared == (12 if target == "flexasr" else 3)


@pytest.mark.parametrize("target", TARGETS)
def test_constant_parts_are_the_same_for_every_input_and_the_others_are_not(target: str, folder: Path) -> None:
    first, second = emitted(folder, target, 0), emitted(folder, target, 1)
    constant = [list(part_of(t, constant=True).events()) for t in (first, second)]
    moving = [list(part_of(t, constant=False).events()) for t in (first, second)]
    assert constant[0] == constant[1]
    assert moving[0] != moving[1]
    assert len(moving[0]) == len(moving[1])
    assert list(merged_trace([part_of(first, constant=False), part_of(first, constant=True)]).events()) == list(first.events())


@pytest.mark.parametrize("target", TARGETS)
def test_a_constant_part_with_moving_parts_of_another_input_replays(target: str, folder: Path) -> None:
    """What the header calls constant is enough: weights of one trace, inputs and results of another."""
    first, second = emitted(folder, target, 0), emitted(folder, target, 5)
    mixed = merged_trace([part_of(first, constant=True), part_of(second, constant=False)])
    assert replay(mixed, model(first)).different == 0


def test_every_command_stands_in_a_phase(folder: Path) -> None:
    trace = emitted(folder, "flexasr", 0)
    assert isinstance(trace.items[0], Section)
    found = costs(trace)
    assert sum(c.commands for c in found) == trace.commands == 731
    assert [c.phase for c in found if c.offload == "linear_0"] == list(PHASES)
    by_phase = {c.phase: c.commands for c in found if c.offload == "linear_0"}
    # 64 rows of 64 weights in vectors of 16, 4 bias vectors, 4 programs; 4 vectors in, 4 out
    assert by_phase == {"configuration": 14, "constants": 264, "inputs": 4, "run": 1, "results": 4}


@pytest.mark.parametrize(("target", "form"), [("flexasr", "json"), ("flexasr", "assembly"), ("vta", "binary")])
def test_every_form_is_checked(target: str, form: str, folder: Path) -> None:
    ending = {"json": "jsonl", "binary": "bin", "assembly": "asm"}[form]
    made = flexmatch("emit", "trace", f"digits.{target}.json", "--form", form, "--data", "test.npz", "--sample", 3)
    assert (made.code, made.err, made.new) == (0, "", (f"digits.{target}.{ending}",))
    checked = flexmatch("emit", "check", f"digits.{target}.{ending}")
    assert (checked.code, checked.err, checked.new) == (0, "", ())
    assert checked.out.startswith("replayed  ")


def test_parts_are_joined_and_checked(folder: Path) -> None:
    for part in ("constant", "inference"):
        assert flexmatch("emit", "trace", "digits.flexasr.json", "--part", part, "-q").new == (f"digits.flexasr.{part}.jsonl",)
    names = ("digits.flexasr.inference.jsonl", "digits.flexasr.constant.jsonl")
    assert flexmatch("emit", "check", *names).out == "replayed  731 commands on flexasr, 12 reads equal\n"
    assert flexmatch("emit", "trace", "digits.vta.json", "-q").code == 0
    said = "digits.vta.jsonl must be a part of the same trace as digits.flexasr.constant.jsonl"
    refused(flexmatch("emit", "check", names[1], "digits.vta.jsonl"), 2, f"error[F203]: {said}\n  help: check one trace at a time")


def test_documents_are_what_their_schema_says(folder: Path) -> None:
    for arguments in (
        ("emit", "trace", "digits.flexasr.json"),
        ("emit", "check", "digits.flexasr.jsonl"),
        ("show", "offload", "linear_1", "digits.flexasr.json"),
    ):
        answer = flexmatch(*arguments, "--json", "-")
        assert (answer.code, answer.err) == (0, "")
        document = json.loads(answer.out)
        jsonschema.validate(document, schema_of(document["schema"].split(".")[1].split("/")[0]), jsonschema.Draft202012Validator)


def changed(folder: Path, change: Any) -> Answer:
    """Change the lines of a trace and check it."""
    trace = emitted(folder, "flexasr", 0)
    file = folder / "t.flexasr.jsonl"
    file.write_text("\n".join(change(to_json_lines(trace, model(trace)).decode().splitlines())) + "\n", "utf-8")
    return flexmatch("emit", "check", file.name)


def test_a_read_that_differs_is_named(folder: Path) -> None:
    def other(lines: list[str]) -> list[str]:
        at = next(n for n, line in enumerate(lines) if '"gives"' in line)
        return [*lines[:at], lines[at][:-3] + ("0" if lines[at][-3] != "0" else "1") + '"}', *lines[at + 1 :]]

    answer = changed(folder, other)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(
        "linear_0 call 0 results, command 283: error[I111]: 1 of 12 reads differ, first gb_core_load_large index=64: "
    )


def test_a_changed_weight_is_found(folder: Path) -> None:
    def other(lines: list[str]) -> list[str]:
        """Clear the first weight vector of the last layer: its first logit changes."""
        start = next(n for n, line in enumerate(lines) if '"offload":"linear_2"' in line and '"constants"' in line)
        found = next(n for n, line in enumerate(lines) if n > start and '"addr":"0x345' in line)
        return [*lines[:found], '{"wr":1,"addr":"0x34500000"}', *lines[found + 1 :]]

    assert "reads differ" in changed(folder, other).err


WRONG: dict[str, tuple[Any, int, str]] = {
    "undecodable address": (
        lambda lines: [*lines[:2], '{"wr":1,"addr":"0x12340000"}', *lines[3:]],
        3,
        "t.flexasr.jsonl:3: error[I101]: no instruction of flexasr decodes wr=0x1, addr=0x12340000\n  help: emit the trace again",
    ),
    "truncated": (
        lambda lines: lines[:100],
        3,
        "t.flexasr.jsonl: error[F103]: the trace ends early: its last line, 101, does not close it\n  help: emit the trace again",
    ),
    "version": (
        lambda lines: [lines[0].replace("flexmatch.trace/1", "flexmatch.trace/2"), *lines[1:]],
        3,
        't.flexasr.jsonl: error[F103]: Schema of a trace must be "flexmatch.trace/1", not "flexmatch.trace/2"\n'
        "  help: emit the trace again",
    ),
    "unknown target": (
        lambda lines: [lines[0].replace('"target":"flexasr"', '"target":"flexbsr"'), *lines[1:]],
        2,
        'error[F201]: there is no accelerator called "flexbsr"\n'
        '  help: did you mean "flexasr"? known: flexasr, genesys, hlscnn, hvx, vta (or give a path ending in .py)',
    ),
    "unknown parameter": (
        lambda lines: [lines[0].replace('"sigmoid"', '"sigmund"'), *lines[1:]],
        2,
        'error[F203]: flexasr has no parameter "sigmund"\n  help: parameters: behaviour, sigmoid',
    ),
    "no trace": (
        lambda lines: ["{}"],
        3,
        "t.flexasr.jsonl: error[F103]: the file is not a trace\n"
        "  help: give a file that flexmatch emit trace wrote",
    ),
    "a wait too many": (
        lambda lines: [lines[0], '{"wait":{}}', *lines[1:]],
        1,
        "command 0: error[I104]: no interrupt can come: Control is not configured valid (config_gb_control is_valid)\n"
        "  help: start what it waits for, write what it reads: the sentence names the engine and what is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_trace_is_refused(what: str, folder: Path) -> None:
    change, code, said = WRONG[what]
    answer = changed(folder, change)
    assert (answer.code, answer.out, answer.err) == (code, "", f"{said}\n")


def test_the_target_must_be_the_one_of_the_trace(folder: Path) -> None:
    assert flexmatch("emit", "trace", "digits.vta.json", "-q").code == 0
    said = (
        "error[F203]: --accel must be vta, the target of the trace, not hlscnn"
        "\n  help: --accel NAME[:key=value,…]: accelerator by name or path; repeat for several"
    )
    refused(flexmatch("emit", "check", "digits.vta.jsonl", "--accel", "hlscnn"), 2, said)


def test_a_target_that_changed_since_the_trace_is_said(folder: Path) -> None:
    answer = changed(folder, lambda lines: [lines[0].replace('"sha256":"', '"sha256":"0'), *lines[1:]])
    assert answer.out.splitlines()[-1] == "note      the target changed since the trace"


REFUSED: dict[str, tuple[tuple[str, ...], int, str]] = {
    "nothing to emit": (
        ("emit", "trace", "none.json"), 2, "none.json: error[F101]: there is no such file\n  help: give a plan or a model"),
    "no trace": (("emit", "check", "none.jsonl"), 2, "none.jsonl: error[F101]: there is no such file\n  help: check the path"),
    "no formats": (
        ("emit", "trace", "bare.json"), 2,
        "error[C100]: the plan is not calibrated: its offloads have no formats\n  help: compile with --calibrate FILE",
    ),
    "what": (
        ("emit", "tace", "digits.vta.json"), 2,
        'error[F203]: the argument must be one of trace, check, c, device, verilog, asm, not "tace"\n'
        "  help: write flexmatch emit trace|check|c|device|verilog|asm PLAN|MODEL|TRACE|TARGET|FILE … [OPTION …]",
    ),
    "two plans": (
        ("emit", "trace", "digits.vta.json", "bare.json"), 2,
        'error[F203]: "bare.json" is one argument too many\n  help: flexmatch emit trace takes one file',
    ),
    "no such sample": (
        ("emit", "trace", "digits.vta.json", "--data", "test.npz", "--sample", "500"), 2,
        "test.npz: error[F203]: --sample must be below 500, the samples there are, not 500\n"
        "  help: --sample N: the sample of --data (default 0)",
    ),
    "comments in assembly": (
        ("emit", "trace", "digits.vta.json", "--comments", "--form", "assembly"), 2,
        "error[F203]: --comments is for --form json, not assembly\n  help: assembly names instructions and fields already",
    ),
    "no such folder": (
        ("emit", "trace", "digits.vta.json", "-o", "none/t"), 2,
        "error[F100]: none/t.vta.jsonl cannot be written: there is no folder none\n  help: mkdir -p none makes it",
    ),
    "no such offload": (
        ("show", "offload", "linear_7", "digits.flexasr.json"), 2,
        'error[F203]: the plan has no offload "linear_7"\n  help: did you mean "linear_0"? offloads: linear_0, linear_1, linear_2',
    ),
    "no such call": (
        ("show", "offload", "linear_0", "digits.flexasr.json", "--call", "1"), 2,
        "error[F203]: --call must be below 1, the calls of linear_0, not 1\n  help: flexmatch show --help lists the options",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_said(what: str, folder: Path) -> None:
    arguments, code, said = REFUSED[what]
    refused(flexmatch(*arguments), code, said)


def test_an_offload_is_shown_side_by_side(folder: Path) -> None:
    answer = flexmatch("show", "offload", "linear_2", "digits.flexasr.json")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "linear_2  flexasr.linear"
    assert lines[2].split() == ["program", "ILA", "instructions", "MMIO", "commands"]
    text = answer.out
    for shown in (
        "y = bias_add(",
        "; configuration",
        "pe0_config_rnn_layer_sizing",
        "W 0x34400010 0x10101000001",
        "… 28 more",
        "; results",
    ):
        assert shown in text, shown
    whole = flexmatch("show", "offload", "linear_2", "digits.flexasr.json", "--trace").out
    assert "more" not in whole
    assert len(whole.splitlines()) > len(lines)


def test_a_stream_is_shown_with_its_memory(folder: Path) -> None:
    text = flexmatch("show", "offload", "dense_2", "digits.vta.json").out
    for shown in ("; configuration", "dram: ", "load_uop", "wait for the interrupt", "dram["):
        assert shown in text, shown


def test_blocks_are_as_long_as_they_can_be(folder: Path) -> None:
    """Neighbouring commands of a section are one block of columns."""
    items = emitted(folder, "vta", 0).items
    blocks = [isinstance(i, Commands) and i.gives is None for i in items]
    assert not any(a and b for a, b in itertools.pairwise(blocks))
