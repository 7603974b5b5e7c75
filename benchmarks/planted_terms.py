"""Planted flaws: one line of a target's numerics, or one field of one number format, is spoilt; does attribution name it first?

Every flaw runs in a process of its own, a flaw of numerics on a copy of the package. The plan is compiled there without asking
the court, which would refuse most flaws, and calibration samples complete it as they do for a user: an offload out of its range is
rescaled or on the host. A flaw counts when it costs LEAST_LOSS of the metric more than the sound design loses.

A culprit is right when it is at one of the flaw's lines (what is read there included: the entries of a table, a number that formats
give), at its field of a format, or when it repairs the flaw bit for bit: on samples held back the repaired numerics give the codes of
the sound ones, in the formats of the sound design. Any other is false. Where attribution says that either of several changes explains
the loss, one of them must be right; where it names none, the change that takes back most must be.
`--drawn SEED` adds flaws drawn at random. With `--json FILE` it goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from drawn_flaws import draw, mutations
from onnx import TensorProto, helper, numpy_helper
from record import ROOT, Row, finish, options, recorded

SEED, SAMPLES, LEAST_LOSS = 11, 48, 0.02
CONTENT = ("rules", "ila_models", "targets", "apps")
LINEAR, NUMERICS, NORM = "targets/flexasr/linear.py", "ila_models/flexasr/numerics.py", "targets/flexasr/layer_norm.py"
HL_NUMERICS, HLSCNN = "ila_models/hlscnn/numerics.py", "targets/hlscnn.py"
DENSE, CONV = "targets/vta/dense.py", "targets/vta/conv2d.py"
CORE = "signed(reduce_sum(product, count), 32) >> shift"
TOY = "toy.py"


@dataclass(frozen=True)
class Flaw:
    """A flaw: its kind, the file, the text and what replaces it, and other texts of files at whose lines a culprit is right.

    One that is drawn has its position and its lines. Without a file,
    `old` is OFFLOAD.TENSOR.FIELD of a format and `new` what is added to it. `apps` are those that use the line.
    """

    kind: str
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str], ...] = ()
    apps: tuple[str, ...] = ()
    at: int = -1  # in the file; -1: where the text is first
    drawn_lines: tuple[int, ...] = ()
    seed: int = 0  # of one that is drawn

    def spoilt(self, sound: str) -> str:
        """Return the text of the file with the flaw."""
        at = sound.find(self.old) if self.at < 0 else self.at
        if sound[at : at + len(self.old)] != self.old:
            raise SystemExit(f"{self.file} has no {self.old!r} to spoil")
        return sound[:at] + self.new + sound[at + len(self.old) :]


USE_OF_TABLES = ((LINEAR, "return encode(activation(word)"), (NORM, "INVSQRT(signed(square"))
ENCODE = ((NUMERICS, "mantissa = ((size << fill)"), (NUMERICS, "half = "))
WORD = f"return clamp(({CORE}) + bias, -limit, limit)"
PRODUCTS = ((LINEAR, WORD.removeprefix("return ")),)
FLEXASR = (
    *(Flaw("accumulator width", LINEAR, CORE, CORE.replace("32", str(bits))) for bits in (20, 21, 22, 23)),
    *(Flaw("saturation width", LINEAR, "limit = (1 << 19) - 1", f"limit = (1 << {n}) - 1", ((LINEAR, "-limit, limit"),))
      for n in (13, 14, 15)),
    *(Flaw("saturate to wrap", LINEAR, WORD, f"return signed(({CORE}) + bias, {n})") for n in (15, 16)),
    Flaw("missing clamp", LINEAR, WORD, f"return signed(({CORE}) + bias, 14)"),
    *(Flaw("shift", LINEAR, CORE, CORE.replace("shift", f"(shift {n})")) for n in ("+ 1", "- 1")),
    *(Flaw("binary point", LINEAR, "shift = 14 - f", f"shift = {n} - f", PRODUCTS) for n in (13, 15)),
    *(Flaw("stale state", LINEAR, CORE, CORE.replace("count)", f"count) {n}")) for n in ("+ (1 << 20)", "- (3 << 19)")),
    Flaw("rounding", NUMERICS, "half = (lift(1) << drop) >> 1", "half = (lift(1) << drop) - 1", ENCODE),
    Flaw("operands", NUMERICS, "return maximum(x, 0)", "return select(x < 0, x, 0)", apps=("digits_mlp",)),
)  # fmt: skip
FLEXASR_NORM = (
    Flaw("operands", NORM, "signed(word(t, j) - mean[t], 20) * scale", "signed(mean[t] - word(t, j), 20) * scale", apps=("norm",)),
    Flaw("shift", NORM, "square = array(lambda t: mean_of(t, lambda a: signed((a * a) >> 14, 20)), (t,))",
         "square = array(lambda t: mean_of(t, lambda a: signed((a * a) >> 15, 20)), (t,))", apps=("norm",)),
    Flaw("shift", NORM, "* scale[t]) >> 14", "* scale[t]) >> 15", apps=("norm",)),
    Flaw("shift", NORM, '.bias)) >> 14, 20)', '.bias)) >> 13, 20)', apps=("norm",)),
    *(Flaw("accumulator width", NORM, "LANES), 20)", f"LANES), {n})", apps=("norm",)) for n in (15, 16)),
    *(Flaw("accumulator width", NORM, "n // LANES), 24)", f"n // LANES), {n})", apps=("norm",)) for n in (16, 17)),
)  # fmt: skip
FLEXASR_TABLES = (
    *(Flaw("table entry", NUMERICS, "SIGMOID_START = (513, 668,", f"SIGMOID_START = ({a}, {b},", USE_OF_TABLES, ("sigmoid",))
      for a, b in ((213, 668), (513, 368), (813, 668))),
    *(Flaw("table entry", NUMERICS, "TANH_START = (1, 252, 476,", f"TANH_START = ({a}, {b}, {c},", USE_OF_TABLES, ("tanh",))
      for a, b, c in ((401, 252, 476), (1, 652, 476), (1, 252, 0))),
    *(Flaw("table entry", NUMERICS, "INVSQRT_START = (5789, 5458,", f"INVSQRT_START = ({a}, {b},", USE_OF_TABLES, ("norm",))
      for a, b in ((2789, 5458), (5789, 2458))),
)  # fmt: skip
RESULT = "sat(select(is_relu, maximum(total, 0), total), 16)"
HLSCNN_FLAWS = (
    *(Flaw("accumulator width", HL_NUMERICS, RESULT, RESULT.replace("16)", f"{bits})")) for bits in (7, 8, 9, 10)),
    *(Flaw("saturate to wrap", HL_NUMERICS, RESULT, RESULT.replace("sat(", "wrap(").replace("16)", f"{bits})")) for bits in (8, 9, 10)),
    Flaw("operands", HL_NUMERICS, "maximum(total, 0)", "total - maximum(total, 0)", ((HL_NUMERICS, "return sat(select(is_relu"),)),
    Flaw("operands", HL_NUMERICS, "select(is_relu, maximum(total, 0), total)", "select(is_relu, total, maximum(total, 0))"),
    *(Flaw("stale state", HLSCNN, "0 if start is None", f"{n} if start is None") for n in (60, 120, -90)),
    *(Flaw("accumulator width", HL_NUMERICS, "shift_right(wrap(truncated, PSUM_BITS)", f"shift_right(wrap(truncated, {bits})")
      for bits in (12, 13, 14, 15)),
    *(Flaw("shift", HL_NUMERICS, 'psum_bits - act_bits, "half_up")', f'psum_bits - act_bits {n}, "half_up")') for n in ("+ 1", "- 1")),
    Flaw("shift", HL_NUMERICS, "activation(k) >> lost for", "activation(k) >> lost + 1 for"),
)  # fmt: skip
TOTAL = "signed(total if b is None else b[n] + total, 32)"
VTA = tuple(
    Flaw(kind, file, TOTAL, new, apps=("digits_mlp", "digits_cnn") if file == DENSE else ("digits_cnn",))
    for file in (DENSE, CONV)
    for kind, new in (
        *(("accumulator width", TOTAL.replace("32)", f"{bits})")) for bits in (8, 10, 11, 12, 13, 14)),
        ("stale state", TOTAL.replace("signed(total", "signed(total + 4000").replace("b[n] + total", "b[n] + total + 4000")),
        ("stale state", TOTAL.replace("signed(total", "signed(total - 6000").replace("b[n] + total", "b[n] + total - 6000")),
        ("shift", TOTAL.replace("signed(", "signed((").replace("+ total,", "+ total) >> 1,")),
    )
)  # fmt: skip
VTA_OPERANDS = (
    Flaw("operands", DENSE, "maximum(word, 0)", "word - maximum(word, 0)"),
    Flaw("operands", CONV, "maximum(word, 0)", "word - maximum(word, 0)", apps=("digits_cnn",)),
)
STEP = "(total + ((lift(1) << shift) >> 1)) >> shift, 8)"
FRACTIONS = 'return f["x"].fraction + f["w"].fraction - f["y"].fraction'
TOYS = (
    *(Flaw("accumulator width", TOY, "LANES), 20), (-most", f"LANES), {n}), (-most") for n in (11, 12, 13, 14)),
    *(Flaw("saturate to wrap", TOY, "sat(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), 20)",
           f"wrap(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), {n})") for n in (12, 13, 14)),
    *(Flaw("shift", TOY, STEP, STEP.replace(">> shift, 8", f">> (shift {s}), 8")) for s in ("+ 1", "- 1")),
    *(Flaw("binary point", TOY, FRACTIONS, f"{FRACTIONS} {s}", ((TOY, ">> shift, 8)"),)) for s in ("+ 1", "- 1")),
    *(Flaw("stale state", TOY, "fold(length, 0,", f"fold(length, {n},") for n in (2000, 4000, -3000, -8000)),
    *(Flaw("saturation width", TOY, ">> shift, 8)", f">> shift, {n})") for n in (4, 5, 6)),
    *(Flaw("missing clamp", TOY, f"return sat({STEP}", f"return wrap({STEP.replace(', 8)', f', {n})')}") for n in (6, 7)),
    Flaw("rounding", TOY, STEP, "total >> shift, 8)"),
    Flaw("rounding", TOY, STEP, "(total + (lift(1) << shift) - 1) >> shift, 8)"),
)  # fmt: skip
FIXED = {"act": 'Fixed(16, {}, "floor"), "w"', "weight": 'Fixed(revision.weight_bits, {}, "floor"), "y"'}
CHOICES = {  # of formats, in all offloads; without a line: a culprit is right where it repairs them
    TOY: tuple(Flaw("binary point", TOY, "7 - math.frexp(largest)[1]", f"{n} - math.frexp(largest)[1]") for n in (4, 5, 9, 10)),
    HLSCNN: tuple(Flaw("binary point", HLSCNN, FIXED[name].format(name), FIXED[name].format(f"{name} {step}"))
                  for name, step in (("act", "- 4"), ("act", "- 5"), ("act", "+ 5"), ("weight", "- 2"), ("weight", "- 3"))),
}  # fmt: skip
CASES: tuple[tuple[str, str, Sequence[Flaw]], ...] = (
    ("digits_mlp", "toy.py", (*TOYS, *CHOICES[TOY])),
    ("digits_mlp", "flexasr", FLEXASR),
    *((app, "flexasr", (*FLEXASR, *FLEXASR_NORM, *FLEXASR_TABLES)) for app in ("tanh", "sigmoid", "norm")),
    ("digits_cnn", "hlscnn:revision=ext16", (*HLSCNN_FLAWS, *CHOICES[HLSCNN])),
    ("digits_mlp", "vta", (*VTA, *VTA_OPERANDS)),
    ("digits_cnn", "vta", (*VTA, *VTA_OPERANDS)),
)
FORMAT_CASES = (("digits_mlp", "toy.py"), ("digits_mlp", "flexasr"), ("digits_cnn", "hlscnn:revision=ext16"), ("digits_mlp", "vta"))
FLEXASR_FILES = ((LINEAR, ("core_word", "linear_codes"), ()), (NUMERICS, ("_integer", "fixed", "encoded", "relu"), ()))
DRAWN_CASES: tuple[tuple[str, str, tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]], ...] = (  # functions and tables of files
    ("digits_mlp", "toy.py", ((TOY, ("dot_product", "codes", "shift_of"), ()),)),
    ("digits_mlp", "flexasr", FLEXASR_FILES),
    ("sigmoid", "flexasr", (*FLEXASR_FILES, (NUMERICS, ("_sigmoid",), ("SIGMOID_START", "SIGMOID_SLOPE")))),
    ("tanh", "flexasr", ((NUMERICS, ("fixed", "encoded", "_tanh"), ("TANH_START", "TANH_SLOPE")),)),
    ("norm", "flexasr", ((NUMERICS, ("fixed", "_invsqrt"), ("INVSQRT_START", "INVSQRT_SLOPE")), (NORM, ("layer_norm_codes",), ()))),
    ("digits_cnn", "hlscnn:revision=ext16", ((HL_NUMERICS, ("rounded_sum", "accumulated"), ()), (HLSCNN, ("conv2d_codes",), ()))),
    ("digits_cnn", "vta", ((DENSE, ("dense_codes",), ()), (CONV, ("conv2d_codes",), ()))),
)
STEPS = (-3, -2, 2, 3)  # of a binary point or a bias


@dataclass(frozen=True)
class Tried:
    """The plan of an application on the sound design, the samples that it is tried on, calibrated with, and those held back."""

    plan: Any
    trials: Any
    calibration: Any
    held_back: Any


# -- in the parent: copies and processes


def copied(folder: Path) -> Path:
    """Copy the package and its content into a folder, with the tutorial's machine."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("flexmatch", "rewrite_compiler"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in CONTENT:
        shutil.copytree(ROOT / name, folder / "rewrite_compiler" / name, ignore=ignored, dirs_exist_ok=True)
    page = (ROOT / "docs/tutorial/first-accelerator.md").read_text("utf-8")
    (folder / TOY).write_text(re.findall(r"```python file=toy.py\n(.*?)```", page, re.DOTALL)[0], "utf-8")
    return folder


def place_of(folder: Path, file: str) -> Path:
    """Return where a file of the checkout lies in the copy."""
    return folder / file if file == TOY else folder / "rewrite_compiler" / file


@dataclass(frozen=True)
class Planted:
    """A flaw in an application, with the lines at which a culprit is right."""

    flaw: Flaw
    lines: tuple[str, ...]
    answer: Any  # None where it was refused


def term_rows(folder: Path, app: str, accel: str, flaws: Sequence[Flaw]) -> Iterator[Row]:
    """Yield the row of each flaw as it is answered: planted, asked for, and taken back."""
    with started(folder, app, accel, "--terms") as server:
        assert server.stdin is not None
        assert server.stdout is not None
        sound_loss = float(server.stdout.readline())
        for flaw in flaws:
            path = place_of(folder, flaw.file)
            sound = path.read_text("utf-8")
            path.write_text(flaw.spoilt(sound), "utf-8")
            lines = [f"{path.name}:{n}" for n in flaw.drawn_lines]
            lines = lines or [f"{Path(file).name}:{n}" for file, text in ((flaw.file, flaw.new), *flaw.also)
                     for n, line in enumerate(place_of(folder, file).read_text("utf-8").splitlines(), 1) if text in line]  # fmt: skip
            server.stdin.write("ask\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline())
            path.write_text(sound, "utf-8")
            yield row_of(app, accel, sound_loss, Planted(flaw, tuple(lines), answer))
        server.stdin.close()


def row_of(app: str, accel: str, sound_loss: float, p: Planted) -> Row:
    """Return the row of a flaw; one that was refused has no loss, and one that costs too little is not asked for."""
    loss = None if p.answer is None else p.answer["loss"]
    row: Row = {
        "application": app, "accelerator": accel, "kind": p.flaw.kind, "file": p.flaw.file, "at": p.flaw.at, "old": p.flaw.old,
        "flaw": p.flaw.new, "samples": SAMPLES, "seed": SEED, "drawn": p.flaw.seed, "sound_loss": sound_loss, "loss": loss,
        "costs": loss is not None and loss - sound_loss >= LEAST_LOSS,
    }  # fmt: skip
    if not row["costs"]:
        return row
    first, named = p.answer["first"] or {}, p.answer["named"]
    at_line = [c.get("place") in p.lines for c in named]
    return {
        **row, "lines": list(p.lines), **verdict(at_line, p.answer["exact"], first.get("place") in p.lines),
        "named": [f"{c['field']} at {c['place']}" if "place" in c else f"{c['tensor']}.{c['field']} of {c['offload']}" for c in named],
        "first": first.get("place"), "field": first.get("field"), "cpu_seconds": p.answer["cpu_seconds"],
    }  # fmt: skip


def verdict(at_line: Sequence[bool], exact: Sequence[bool], is_first: bool) -> Row:
    """Return whether the culprits of a flaw are right: each named one at its line, or bit for bit; of none, the first ranked."""
    each = [line or bits for line, bits in zip(at_line, exact, strict=True)]
    return {
        "right": any(each) if each else is_first, "false": bool(each) and not any(each), "alone": len(each) == 1 and each[0],
        "at_line": any(at_line), "exact": any(exact),
    }  # fmt: skip


def started(folder: Path, app: str, accel: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process on the copy of the package."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "FLEXMATCH_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, __file__, arguments[0], app, str(folder / TOY) if accel == TOY else accel, *arguments[1:]]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def format_rows(folder: Path, app: str, accel: str, count: int) -> list[Row]:
    """Return the rows of flaws of number formats in an application."""
    answers = json.loads(started(folder, app, accel, "--formats", str(count)).communicate()[0])
    return [{"application": app, "accelerator": accel, "file": "", "samples": SAMPLES, "seed": SEED, "costs": True, **a} for a in answers]


# -- in the child: one flawed package


def layers(activation: str, random: np.random.Generator) -> Any:
    """Return a network of three products of 32 elements with an activation, or a layer norm, between them."""
    nodes, constants, last = [], [], "x"
    for n in range(3):
        spread = 0.08 if n and activation == "norm" else 0.25  # what is normalised next stays in the range of the device
        constants += [numpy_helper.from_array(random.normal(0, spread, (32, 32)).astype(np.float32), f"w{n}"),
                      numpy_helper.from_array(random.normal(0, 0.2, 32).astype(np.float32), f"b{n}")]  # fmt: skip
        nodes.append(helper.make_node("Gemm", [last, f"w{n}", f"b{n}"], [f"h{n}"], name=f"gemm{n}", transB=1))
        last = f"h{n}"
        if n < 2 and activation == "norm":
            constants += [numpy_helper.from_array(x.astype(np.float32), f"{k}{n}") for k, x in (("g", np.ones(32)), ("c", np.zeros(32)))]
            nodes.append(helper.make_node("LayerNormalization", [last, f"g{n}", f"c{n}"], [f"a{n}"], name=f"norm{n}"))
        elif n < 2:
            nodes.append(helper.make_node(activation.capitalize(), [last], [f"a{n}"], name=f"{activation}{n}"))
        last = f"a{n}" if n < 2 else last
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tried_on(app: str, accel: str) -> Tried:
    """Return the calibrated plan of an application on an accelerator of this package, with its samples."""
    from rewrite_compiler.apps import find_application
    from rewrite_compiler.compile import calibrated, compile_model
    from rewrite_compiler.compile import compile as compiler
    from rewrite_compiler.compile.plan.user_rules import JudgedOperations
    from rewrite_compiler.cosim.metrics.metrics import metric_of
    from rewrite_compiler.data import samples_for
    from rewrite_compiler.study.diagnosis import candidates
    from rewrite_compiler.study.diagnosis.trials import Trials

    compiler.judge_used_operations = lambda *_: JudgedOperations({}, ())  # type: ignore[assignment]
    candidates.is_certified = lambda *_: True  # type: ignore[assignment]
    random = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        if app.startswith("digits"):
            shipped = find_application(app)
            model, data, calibration = shipped.model, shipped.data, shipped.calibration
        else:
            model = Path(folder) / "app.onnx"
            onnx.save(layers(app, random), model)
            data, calibration = ({"x": random.normal(0, 0.5, (n, 1, 32)).astype(np.float32)} for n in (SAMPLES, 32))
            held_back = {"x": np.random.default_rng(SEED + 1).normal(0, 0.5, (SAMPLES, 1, 32)).astype(np.float32)}
        plan = compile_model(model, [accel])
        formats = samples_for(plan.source, calibration)
        plan = calibrated(plan, formats.inputs, "calibration", formats.sha256)
        samples = samples_for(plan.source, data)
        if app.startswith("digits"):
            rest = samples.take(np.setdiff1d(np.arange(samples.count), np.linspace(0, samples.count - 1, SAMPLES).astype(int)))
        else:
            rest = samples_for(plan.source, held_back)
        return Tried(plan, Trials(plan, samples.evenly(SAMPLES), metric_of("cosine")), formats, rest)


def first_of(document: Any) -> Any:
    """Return the culprit, the likeliest of those that are named, or where there is none the change that takes back most."""
    ordered = sorted([*document["terms"][:1], *document["fields"][:1]], key=lambda c: (c["loss"], c["output_error"]))
    return next(iter([*named_of(document), *ordered]), None)


def named_of(document: Any) -> list[Any]:
    """Return the changes that explain the loss: the culprit, or those of which it is either."""
    return document["either"] or [c for c in (document["culprit"],) if c]


def serve(app: str, accel: str) -> None:
    """Print the loss of the sound design, and for each line of input the answer to the flaw that the files have then, in a fork."""
    tried = tried_on(app, accel)
    loss = tried.trials.run(tried.plan).loss
    print(loss, flush=True)
    for _ in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            answer = None
            try:
                answer = answer_for(tried, accel, loss + LEAST_LOSS)
            except Exception as error:
                print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            print(pipe.read().decode() or "null", flush=True)
        os.waitpid(child, 0)


def answer_for(tried: Tried, accel: str, least: float) -> dict[str, Any]:
    """Return the loss, and from a least one on the culprit, of an application on the accelerator as its files are now."""
    from rewrite_compiler.compile import calibrated, calibrated_within_range
    from rewrite_compiler.compile.rescaling import rescaled
    from rewrite_compiler.study.diagnosis.attribution import attribute_with_plans
    from rewrite_compiler.study.diagnosis.trials import with_float
    from rewrite_compiler.target import find_target, load_target

    sound, trials, formats = tried.plan, tried.trials, tried.calibration
    for name in [n for n in sys.modules if n.startswith(("rewrite_compiler.targets.", "rewrite_compiler.ila_models."))]:
        del sys.modules[name]
    target = load_target(accel) if accel.endswith(".py") else find_target(accel)
    offloads = tuple(replace(o, target=target, mapping=target.mappings[o.mapping.variant]) for o in sound.offloads)
    flawed = replace(sound, offloads=offloads, calibration=None)

    def on_host(pins: tuple[str, ...], scaled: tuple[str, ...]) -> Any:
        """Return the flawed plan without the offloads that pins send to the host."""
        names = {name for place, _, name in (pin.partition("=") for pin in pins) if place == "host"}
        bare = with_float(flawed, {o.id for o in offloads if names & {*o.nodes}})
        return rescaled(replace(bare, settings={**bare.settings, "on": pins}), scaled, {target.name: None})

    plan = calibrated_within_range(replace(flawed, compile_again=on_host), formats, source="calibration")
    loss, start = trials.run(plan).loss, time.process_time()
    if loss < least:
        return {"loss": loss}
    found = attribute_with_plans(plan, trials)
    seconds = time.process_time() - start
    chosen = calibrated(flawed, formats.inputs, "calibration", formats.sha256)
    has_other_formats = any(o.formats != s.formats for o, s in zip(chosen.offloads, sound.offloads, strict=True))
    exact = [repairs(tried, p, has_other_formats) for p in found.culprits]
    return {"loss": loss, "named": named_of(found.document), "first": first_of(found.document), "exact": exact, "cpu_seconds": seconds}


def repairs(tried: Tried, plan: Any, has_other_formats: bool) -> bool:
    """Tell whether a plan with a flaw and a change computes what the sound design does on samples held back, bit for bit.

    Where the flaw is in the choice of formats, these must be those of the sound design.
    """
    from rewrite_compiler.compile.offload.specified import NumericsOffload
    from rewrite_compiler.compile.plan.plan import tensors_of
    from rewrite_compiler.study.diagnosis.candidates import float_run

    tensors, constants = float_run(plan, tried.held_back).tensor_values, plan.program.constants
    sound = {o.id: o for o in tried.plan.offloads}
    for o in plan.offloads:
        of_name = tensors_of(o)
        operands = {v.name: of_name[v.name] for v in o.mapping.operands}
        moving = {n: tensors[v] for n, v in operands.items() if v not in constants}
        as_sound = replace(o, mapping=replace(o.mapping, codes=sound[o.id].mapping.codes))
        given = {n: constants[v] for n, v in operands.items() if v in constants}
        expected, actual = (NumericsOffload(x, given, is_native=False).results(moving) for x in (as_sound, o))
        if not all(map(np.array_equal, expected, actual)) or (has_other_formats and o.formats != sound[o.id].formats):
            return False
    return bool(plan.offloads)


def format_answers(app: str, accel: str, count: int) -> list[dict[str, Any]]:
    """Return what attribution says of random flaws of binary points and biases, `count` of those that cost enough."""
    from rewrite_compiler.errors import FlexmatchError
    from rewrite_compiler.study.diagnosis.attribution import attribute
    from rewrite_compiler.study.diagnosis.trials import with_formats_of

    tried = tried_on(app, accel)
    plan, trials = tried.plan, tried.trials
    sound_loss = trials.run(plan).loss
    places = [(o, name, field, step) for o in plan.offloads for name, f in o.formats.items() if name not in o.mapping.derived
              for field in sorted({"fraction", "bias"} & f.parameters.keys()) for step in STEPS]  # fmt: skip
    answers: list[dict[str, Any]] = []
    for o, name, field, step in (places[k] for k in np.random.default_rng(SEED).permutation(len(places))):
        try:
            f = replace(o.formats[name], **{field: o.formats[name].parameters[field] + step})
            bad = with_formats_of(plan, {o.id: o.mapping.with_format(o.formats, name, f)})
            loss, start = trials.run(bad).loss, time.process_time()
        except (FlexmatchError, ValueError):
            continue  # the device has no such format
        if loss - sound_loss < LEAST_LOSS:
            continue
        document = attribute(bad, trials)
        tensors = next((g for g in o.mapping.shared if name in g), (name,))
        right = [f"{tensor}.{field} of {o.id}" for tensor in (tensors if not isinstance(tensors, str) else tensors.split())]
        first, *named = (
            f"{c.get('tensor')}.{c['field']} of {c['offload']}" if c else None for c in (first_of(document), *named_of(document))
        )
        answers.append({
            "kind": "bias" if field == "bias" else "binary point", "at": -1, "drawn": 0,
            "flaw": f"{name}.{field} of {o.id} {step:+}", "sound_loss": sound_loss,
            "loss": loss, "lines": right, "named": named, "first": first, "field": field,
            **verdict([c in right for c in named], [False] * len(named), first in right), "cpu_seconds": time.process_time() - start,
        })  # fmt: skip
        if len(answers) == count:
            break
    return answers


def shown(row: Row) -> str:
    """Return a row as a line."""
    if not row["costs"]:
        return f"{row['application']} {row['accelerator']} {row['kind']} {row['flaw']}: " + (
            "refused" if row["loss"] is None else f"{row['sound_loss']:.3f} → {row['loss']:.3f}, too little"
        )
    answer = "FALSE" if row["false"] else "not first" if not row["right"] else "at the line" if row["at_line"] else "bit for bit"
    what = " ".join(str(row[key]) for key in ("application", "accelerator", "kind", "flaw"))
    named = ", ".join(row["named"]) or "none"
    return f"{what}: {row['sound_loss']:.3f} → {row['loss']:.3f}, first {row['first']}, named {named} of {row['lines']}: {answer}"


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["--terms"]:
        serve(*sys.argv[2:4])
        return
    if sys.argv[1:2] == ["--formats"]:
        print(json.dumps(format_answers(*sys.argv[2:4], int(sys.argv[4]))))
        return
    parser: argparse.ArgumentParser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="flaws of applications, accelerators or kinds that contain it")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every n-th flaw (default: all)")
    parser.add_argument("--count", type=int, default=6, metavar="N", help="flaws of formats in each application (default: %(default)s)")
    parser.add_argument("--drawn", type=int, action="append", default=[], metavar="SEED", help="flaws drawn at random with a seed, too")
    parser.add_argument("--draws", type=int, default=20, metavar="N", help="of these in each application (default: %(default)s)")
    args = parser.parse_args()
    rows = recorded(args.json)
    known = {key_of(row) for row in rows}
    with tempfile.TemporaryDirectory() as name:
        folder = copied(Path(name))
        for app, accel, flaws in (*CASES, *drawn_cases(folder, args.drawn, args.draws)):
            chosen = [f for f in flaws if (not f.apps or app in f.apps) and args.only in f"{app} {accel} {f.kind}"][:: args.every]
            chosen = [f for f in chosen if (app, accel, f.kind, f.new, f.at) not in known]
            for row in term_rows(folder, app, accel, chosen) if chosen else ():
                rows.append(row)
                print(shown(row), flush=True)
                finish("planted_terms", rows, args.json)
        for app, accel in (case for case in FORMAT_CASES if args.only in f"{case[0]} {case[1]} format"):
            if not any((row["application"], row["accelerator"], row["file"]) == (app, accel, "") for row in rows):
                rows += format_rows(folder, app, accel, args.count)
                print(*map(shown, rows[-args.count :]), sep="\n", flush=True)
                finish("planted_terms", rows, args.json)
    rows = [row for row in rows if row["costs"]]
    right, false, alone, named = (sum(bool(row[key]) for row in rows) for key in ("right", "false", "alone", "named"))
    print(f"{right} of {len(rows)} flaws that cost {LEAST_LOSS} or more are named first, {alone} of them alone;"
          f" {false} of {named} answers are false culprits")  # fmt: skip


def key_of(row: Row) -> tuple[Any, ...]:
    """Return what tells the flaw of a row from all others."""
    return tuple(row[key] for key in ("application", "accelerator", "kind", "flaw", "at"))


def drawn_cases(folder: Path, seeds: Sequence[int], count: int) -> Iterator[tuple[str, str, list[Flaw]]]:
    """Yield the flaws that are drawn for each application and each seed."""
    for seed, (app, accel, files) in ((seed, case) for seed in seeds for case in DRAWN_CASES):
        pool = [(file, mutations(place_of(folder, file).read_text("utf-8"), functions, tables)) for file, functions, tables in files]
        chosen = draw(seed, count, pool)
        yield app, accel, [Flaw(m.kind, f, m.old, m.new, at=m.at, drawn_lines=m.lines, seed=seed) for f, m in chosen]


if __name__ == "__main__":
    main()
