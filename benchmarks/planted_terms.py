"""Planted flaws of terms: one line of a target's numerics is spoilt in a copy of the package; does attribution name that line first?

Every flaw runs in a process of its own. The plan is compiled on the flawed copy without asking the court, which would refuse
most flaws, and its formats are calibrated; a flaw counts when it costs LEAST_LOSS of the metric. A culprit is right when it is
at one of the flaw's lines; any other culprit is false.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from record import ROOT, Row, finish, options

SEED, SAMPLES, LEAST_LOSS = 11, 48, 0.02
CONTENT = ("rules", "ila_models", "targets", "apps")
LINEAR, NUMERICS, NORM = "targets/flexasr/linear.py", "ila_models/flexasr/numerics.py", "targets/flexasr/layer_norm.py"
HL_NUMERICS, HLSCNN = "ila_models/hlscnn/numerics.py", "targets/hlscnn.py"
DENSE, CONV = "targets/vta/dense.py", "targets/vta/conv2d.py"
CORE = "signed(reduce_sum(product, count), 32) >> shift"
TOY = "toy.py"


@dataclass(frozen=True)
class Flaw:
    """A flaw: its kind, the file, the text and what replaces it, and other texts of the file at whose lines a culprit is right."""

    kind: str
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str], ...] = ()


USE_OF_TABLES = ((LINEAR, "return encode(activation(word)"), (NORM, "INVSQRT(signed(square"))
ENCODE = ((NUMERICS, "mantissa = ((size << fill)"), (NUMERICS, "half = "))
FLEXASR = (
    *(Flaw("accumulator width", LINEAR, CORE, CORE.replace("32", str(bits))) for bits in (20, 21, 22, 23)),
    *(Flaw("saturation width", LINEAR, "limit = (1 << 19) - 1", f"limit = (1 << {n}) - 1", ((LINEAR, "-limit, limit"),))
      for n in (13, 14, 15)),
    Flaw("saturate to wrap", LINEAR, f"return clamp(({CORE}) + bias, -limit, limit)", f"return signed(({CORE}) + bias, 15)"),
    Flaw("saturate to wrap", LINEAR, f"return clamp(({CORE}) + bias, -limit, limit)", f"return signed(({CORE}) + bias, 16)"),
    Flaw("shift", LINEAR, CORE, CORE.replace("shift", "(shift + 1)")),
    Flaw("shift", LINEAR, CORE, CORE.replace("shift", "(shift - 1)")),
    Flaw("stale state", LINEAR, CORE, CORE.replace("count)", "count) + (1 << 20)")),
    Flaw("stale state", LINEAR, CORE, CORE.replace("count)", "count) - (3 << 19)")),
    Flaw("rounding", NUMERICS, "half = (lift(1) << drop) >> 1", "half = lift(0) * drop", ENCODE),
    Flaw("operands", NUMERICS, "return maximum(x, 0)", "return select(x < 0, x, 0)"),
    Flaw("operands", NORM, "signed(word(t, j) - mean[t], 20) * scale", "signed(mean[t] - word(t, j), 20) * scale"),
    Flaw("shift", NORM, "square = array(lambda t: mean_of(t, lambda a: signed((a * a) >> 14, 20)), (t,))",
         "square = array(lambda t: mean_of(t, lambda a: signed((a * a) >> 15, 20)), (t,))"),
    Flaw("shift", NORM, "* scale[t]) >> 14", "* scale[t]) >> 15"),
    Flaw("shift", NORM, '.bias)) >> 14, 20)', '.bias)) >> 13, 20)'),
    Flaw("accumulator width", NORM, "LANES), 20)", "LANES), 16)"),
    Flaw("accumulator width", NORM, "n // LANES), 24)", "n // LANES), 17)"),
    *(Flaw("table entry", NUMERICS, "SIGMOID_START = (513, 668,", f"SIGMOID_START = ({a}, {b},", USE_OF_TABLES)
      for a, b in ((213, 668), (513, 368), (813, 668))),
    *(Flaw("table entry", NUMERICS, "TANH_START = (1, 252, 476,", f"TANH_START = ({a}, {b}, {c},", USE_OF_TABLES)
      for a, b, c in ((401, 252, 476), (1, 652, 476), (1, 252, 0))),
    *(Flaw("table entry", NUMERICS, "INVSQRT_START = (5789, 5458,", f"INVSQRT_START = ({a}, {b},", USE_OF_TABLES)
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
VTA_DENSE, VTA_CONV = "signed(total if b is None else b[n] + total, 32)", "signed(total if b is None else b[n] + total, 32)"
VTA = tuple(
    Flaw(kind, file, old, new)
    for file, old in ((DENSE, VTA_DENSE), (CONV, VTA_CONV))
    for kind, new in (
        *(("accumulator width", old.replace("32)", f"{bits})")) for bits in (8, 9, 10, 11, 12, 13, 14)),
        ("stale state", old.replace("signed(total", "signed(total + 4000").replace("b[n] + total", "b[n] + total + 4000")),
        ("stale state", old.replace("signed(total", "signed(total - 6000").replace("b[n] + total", "b[n] + total - 6000")),
        ("shift", old.replace("signed(", "signed((").replace("+ total,", "+ total) >> 1,")),
    )
) + tuple(Flaw("operands", file, "maximum(word, 0)", "word - maximum(word, 0)") for file in (DENSE, CONV))  # fmt: skip
STEP = "(total + ((lift(1) << shift) >> 1)) >> shift, 8)"
TOYS = (
    *(Flaw("accumulator width", TOY, "LANES), 20), (-most", f"LANES), {n}), (-most") for n in (11, 12, 13, 14)),
    *(Flaw("saturate to wrap", TOY, "sat(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), 20)",
           f"wrap(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), {n})") for n in (12, 13, 14)),
    *(Flaw("shift", TOY, STEP, STEP.replace(">> shift, 8", f">> (shift {s}), 8")) for s in ("+ 1", "- 1")),
    *(Flaw("stale state", TOY, "fold(length, 0,", f"fold(length, {n},") for n in (2000, 4000, -3000, -8000)),
    *(Flaw("saturation width", TOY, ">> shift, 8)", f">> shift, {n})") for n in (4, 5, 6)),
    *(Flaw("missing clamp", TOY, f"return sat({STEP}", f"return wrap({STEP.replace(', 8)', f', {n})')}") for n in (6, 7)),
    Flaw("rounding", TOY, STEP, "total >> shift, 8)"),
)  # fmt: skip
CASES: tuple[tuple[str, str, Sequence[Flaw]], ...] = (
    ("digits_mlp", "toy.py", TOYS),
    ("digits_mlp", "flexasr", FLEXASR),
    ("tanh", "flexasr", FLEXASR),
    ("sigmoid", "flexasr", FLEXASR),
    ("norm", "flexasr", FLEXASR),
    ("digits_cnn", "hlscnn:revision=ext16", HLSCNN_FLAWS),
    ("digits_mlp", "vta", VTA),
    ("digits_cnn", "vta", VTA),
)


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


def judged(folder: Path, app: str, accel: str, flaw: Flaw) -> Row | None:
    """Plant a flaw, ask for the culprit in a process of its own, and take the flaw back; None where it costs too little."""
    path = place_of(folder, flaw.file)
    sound = path.read_text("utf-8")
    if sound.count(flaw.old) < 1 or flaw.old == flaw.new:
        raise SystemExit(f"{flaw.file} has no {flaw.old!r} to spoil")
    path.write_text(sound.replace(flaw.old, flaw.new, 1), "utf-8")
    lines = [f"{Path(file).name}:{n}" for file, text in ((flaw.file, flaw.new), *flaw.also)
             for n, line in enumerate(place_of(folder, file).read_text("utf-8").splitlines(), 1) if text in line]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(folder), "FLEXMATCH_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, __file__, "--one", app, str(folder / TOY) if accel == TOY else accel]
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    finally:
        path.write_text(sound, "utf-8")
    if run.returncode:
        print(app, accel, flaw.kind, flaw.new, "refused:", run.stderr.strip().splitlines()[-1][:200], flush=True)
        return None
    answer = json.loads(run.stdout.splitlines()[-1])
    if answer["loss"] < LEAST_LOSS:
        print(app, accel, flaw.kind, flaw.new, f"costs {answer['loss']:.3f} only", flush=True)
        return None
    first, culprit = answer["first"] or {}, answer["culprit"] or {}
    row: Row = {
        "application": app, "accelerator": accel, "kind": flaw.kind, "file": flaw.file, "flaw": flaw.new, "samples": SAMPLES, "seed": SEED,
        "loss": answer["loss"], "lines": lines, "named": culprit.get("place"), "first": first.get("place"), "field": first.get("field"),
        "right": first.get("place") in lines, "false": bool(culprit) and culprit.get("place") not in lines,
        "cpu_seconds": answer["cpu_seconds"],
    }  # fmt: skip
    print(app, accel, flaw.kind, flaw.new, f"costs {answer['loss']:.3f} → {json.dumps(first)} of {lines}", row["right"], flush=True)
    return row


# -- in the child: one flawed package


def layers(activation: str, random: np.random.Generator) -> Any:
    """Return a network of three products of 32 elements with an activation, or a layer norm, between them."""
    nodes, constants, last = [], [], "x"
    for n in range(3):
        constants += [numpy_helper.from_array(random.normal(0, 0.25, (32, 32)).astype(np.float32), f"w{n}"),
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


def answer_for(app: str, accel: str) -> dict[str, Any]:
    """Return the loss and the culprit of an application on an accelerator of this package."""
    import time

    from rewrite_compiler.apps import find_application
    from rewrite_compiler.compile import calibrated, compile_model
    from rewrite_compiler.compile import compile as compiler
    from rewrite_compiler.compile.plan.user_rules import JudgedOperations
    from rewrite_compiler.cosim.metrics.metrics import metric_of
    from rewrite_compiler.data import samples_for
    from rewrite_compiler.study.diagnosis import candidates
    from rewrite_compiler.study.diagnosis.attribution import attribute
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
        plan = compile_model(model, [accel])
        formats = samples_for(plan.source, calibration)
        plan = calibrated(plan, formats.inputs, "calibration", formats.sha256)
        trials = Trials(plan, samples_for(plan.source, data).evenly(SAMPLES), metric_of("cosine"))
        loss, start = trials.run(plan).loss, time.process_time()
        document = attribute(plan, trials) if loss >= LEAST_LOSS else {"culprit": None, "terms": [], "fields": []}
    ordered = sorted([*document["terms"][:1], *document["fields"][:1]], key=lambda c: (c["loss"], c["output_error"]))
    first = document["culprit"] or next(iter(ordered), None)
    return {"loss": loss, "culprit": document["culprit"], "first": first, "cpu_seconds": time.process_time() - start}


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(answer_for(*sys.argv[2:4])))
        return
    parser: argparse.ArgumentParser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="TEXT", help="flaws of applications, accelerators or kinds that contain it")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every n-th flaw (default: all)")
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = copied(Path(name))
        flaws = [(app, accel, flaw) for app, accel, flaws in CASES for flaw in flaws if flaw.old != flaw.new]
        flaws = [case for case in flaws if args.only in f"{case[0]} {case[1]} {case[2].kind}"][:: args.every]
        rows = [row for row in (judged(folder, *case) for case in flaws) if row is not None]
    right, false = (sum(bool(row[key]) for row in rows) for key in ("right", "false"))
    print(f"{right} of {len(rows)} flaws that cost {LEAST_LOSS} or more are named first; {false} false culprits")
    finish("planted_terms", rows, args.json)


if __name__ == "__main__":
    main()
