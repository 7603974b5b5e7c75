"""Commands and bytes of generated streams beside those of hand-written drivers, for every different offload of fifteen models.

    python benchmarks/generated_streams.py --log streams.json --json benchmarks/results/generated_streams.json vta hlscnn

Each model is compiled for an accelerator; an operation at the sizes of one call is an offload. Its driver is taken away, another is
generated from the accelerator's model, and the streams of both are counted: commands, and bytes of commands and of what they move.
The table says of which operations no stream gets longer, and the first reason where there is none. The generation of one offload may
take so many seconds of processor time; where the smallest of an operation takes more, the others are not tried. With `--log FILE` a
call goes on where the last one ended. The script ends with 1 where a stream of an operation that the record called no longer is.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hvx_layers import Program as Recorder
from record import ROOT, Row, commit, finish, options, recorded

from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.errors import SpecError
from rewrite_compiler.sched.driver.generation import Request, program_of
from rewrite_compiler.sched.driver.program import command_bits
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import Target, find_target
from rewrite_compiler.targets.vta.base import UOP_BYTES, config

MODELS = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models"
NAMES = (
    "arch/efficientnet_nose.ts17", "arch/lstm_wlm.ts17", "arch/mobilenetv2_cifar.ts17", "arch/resmlp_cifar.ts17",
    "arch/transformer_explicit.ts17", "arch/resnet20_b.ts17", "arch/tv_resnet50.ts17", "trained/mnist-8", "trained/kws_dscnn_mlperf_float",
    "trained/kws_dscnn_mlperf_int8qdq", "trained/mbv2_cifar10_float", "trained/mbv2_cifar10_int8", "trained/mobilenetv2-12-float",
    "trained/mobilenetv2-12-int8", "trained/resnet20_dyn18",
)  # fmt: skip
TARGETS = ("vta", "hlscnn", "flexasr")
SECONDS = 60.0
LANES = 16  # of a word of a bus
TOO_LONG = "no stream within the processor time"


@dataclass
class Bus(Recorder):
    """A recorder with a bus, whose words it counts: one for each row that is stored or loaded."""

    words: int = 0

    def store(self, instruction: str, **operands: Any) -> None:
        """Count the words."""
        self.words += _rows(operands)

    def load(self, instruction: str, **operands: Any) -> Any:
        """Count the words, and return zeros."""
        self.words += _rows(operands)
        return np.zeros((_rows(operands), LANES), np.int64)

    @property
    def commands(self) -> int:
        """All that has been issued, stored and loaded."""
        return len(self.issued) + self.words


def _rows(operands: Mapping[str, Any]) -> int:
    return max((len(x) for x in operands.values() if np.ndim(x)), default=1)


@dataclass(frozen=True)
class Call:
    """An operation at the sizes of one call."""

    operation: str
    sizes: Mapping[str, int]
    attributes: Mapping[str, Any]

    @property
    def key(self) -> str:
        """What it is called in the log."""
        return f"{self.operation} {json.dumps({**self.sizes, **self.attributes})}"


def calls_of(target: Target, folder: Path) -> list[Row]:
    """Return the different calls of all models on a target, each with the models."""
    found: dict[str, Row] = {}
    for name in NAMES:
        path = MODELS / f"{name}.onnx"
        if not path.exists():
            path = folder / path.name
            path.write_bytes(lzma.decompress((MODELS / f"{name}.onnx.xz").read_bytes()))
        for o in compile_model(path, [target.name], Options(objective="offloads")).offloads:
            for sizes, _ in o.tiling.regions():
                call = Call(o.mapping.variant, dict(sizes), dict(o.node.attributes))
                models: list[str] = found.setdefault(call.key, {**asdict(call), "models": []})["models"]  # type: ignore[assignment]
                models += [path.stem] if path.stem not in models else []
    return list(found.values())


def request_of(m: Operation, call: Call) -> Request:
    """Return what a driver is asked for, in the formats of the magnitude 1."""
    shapes = {v.name: tuple(call.sizes[d] for d in m.axes.of[v.name]) for v in m.operands}
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    return Request(m, shapes, formats, {name: call.attributes[name] for name, _ in m.statics})


def counted(target: Target, m: Operation, device: Bus) -> Row:
    """Return the commands of a stream, and the bytes of commands and of what they move."""
    word_bytes = command_bits(target.ila()) // 8
    if target.name != "vta":
        return {"commands": device.commands, "bytes": word_bytes * device.commands}
    c = config(m.parameters)
    element = {f"load_{s}": c.scalars(s) * c.width(s) // 8 for s in ("inp", "wgt", "acc")}
    element |= {"load_uop": UOP_BYTES, "store": c.scalars("inp")}
    moved = sum(max(f.get("y_size", 1), 1) * f.get("x_size", 0) * element[name] for name, f in device.issued if name in element)
    return {"commands": device.commands, "bytes": word_bytes * device.commands + moved}


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what takes more processor time with a TimeoutError."""

    def end(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def row(target: Target, call: Call, seconds: float) -> Row:
    """Return the counts of both streams of a call, and the processor time of a second generation, or why there is none."""
    m = target.mappings[call.operation]
    r = request_of(m, call)
    codes = {v.name: np.zeros(r.shapes[v.name], np.int64) for v in m.operands}
    by_hand = Bus()
    m.run_driver(by_hand, codes, r.formats, r.attributes)
    found: Row = {"hand": counted(target, m, by_hand)}
    began = time.process_time()
    try:
        with limited(seconds):
            program = program_of(target.ila(), r)
    except TimeoutError:
        return {**found, "reason": f"{TOO_LONG} of {seconds:g} s"}
    except SpecError as refusal:
        return {**found, "reason": str(refusal.problem.sentence), "seconds": round(time.process_time() - began, 2)}
    generated = Bus()
    program.run(generated, codes, {name: len(shape) for name, shape in r.shapes.items()})
    return {**found, "generated": counted(target, m, generated), "seconds": round(time.process_time() - began, 2)}


def rows_of(target: Target, calls: Sequence[Row], log: dict[str, Row], path: Path | None, seconds: float) -> None:
    """Add the rows of calls to a log, those of few elements first, so that a way that takes too long is met soon."""
    hopeless: dict[str, str] = {}
    for about in sorted(calls, key=lambda c: math.prod(dict(c["sizes"]).values())):  # type: ignore[call-overload]
        call = Call(str(about["operation"]), dict(about["sizes"]), _attributes(about["attributes"]))  # type: ignore[call-overload]
        name = f"{target.name}.{call.key}"
        if name not in log:
            reason = hopeless.get(call.operation)
            found = row(target, call, seconds) if reason is None else {"reason": reason}
            log[name] = {"target": target.name, **about, "commit": commit(), **found}
            print(name, {k: x for k, x in found.items() if k != "seconds"}, flush=True)
            if path is not None:
                path.write_text(json.dumps(log, indent=1) + "\n", "utf-8")
        if str(log[name].get("reason", "")).startswith(TOO_LONG):
            hopeless[call.operation] = str(log[name]["reason"])


def _attributes(written: Any) -> dict[str, Any]:
    """Return attributes from JSON, whose lists are tuples."""
    return {name: tuple(x) if isinstance(x, list) else x for name, x in written.items()}


def is_no_longer(r: Row) -> bool:
    """Tell whether a call has a generated stream of no more commands and no more bytes."""
    if "generated" not in r:
        return False
    hand, generated = dict(r["hand"]), dict(r["generated"])  # type: ignore[call-overload]
    return all(generated[what] <= hand[what] for what in ("commands", "bytes"))


def name_of(r: Row) -> str:
    """Return what a row is of."""
    return f"{r['target']}.{r['operation']} {json.dumps([r['sizes'], r['attributes']])}"


def summary(rows: Sequence[Row]) -> Row:
    """Return what the rows of one operation come to; counts are those of the calls that have both streams."""
    both = [r for r in rows if "generated" in r]
    counts = {
        f"{who} {what}": sum(int(dict(r[who])[what]) for r in both)  # type: ignore[call-overload]
        for who in ("hand", "generated")
        for what in ("commands", "bytes")
    }
    no_longer = [r for r in both if is_no_longer(r)]
    reason = next((str(r["reason"]) for r in rows if "reason" in r), "")
    return {
        "target": rows[0]["target"], "operation": rows[0]["operation"], "calls": len(rows), "generated": len(both),
        "no_longer": len(no_longer), **counts, "reason": reason,
    }  # fmt: skip


def by_operation(rows: Sequence[Row]) -> list[Row]:
    """Return a summary of each operation."""
    names = dict.fromkeys((r["target"], r["operation"]) for r in rows)
    return [summary([r for r in rows if (r["target"], r["operation"]) == name]) for name in names]


def shown(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table."""
    head = ("operation", "calls", "generated", "no longer", "commands by hand", "generated", "bytes by hand", "generated")
    yield f"{head[0]:32}" + "".join(f"{h:>18}" for h in head[1:])
    for s in by_operation(rows):
        figures = [
            s[k] for k in ("calls", "generated", "no_longer", "hand commands", "generated commands", "hand bytes", "generated bytes")
        ]
        yield f"{s['target']}.{s['operation']!s:24}"[:32].ljust(32) + "".join(f"{n:>18,}" for n in figures)
        if s["reason"]:
            yield f"    {s['reason']}"


def main() -> int:
    """Count the streams; return 1 where one got longer that a record calls no longer."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep what is found there, and go on from it")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="processor time of one generation (default: %(default)s)"
    )
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    args = parser.parse_args()
    log: dict[str, Any] = json.loads(args.log.read_text("utf-8")) if args.log and args.log.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in args.targets:
            target = find_target(name)
            if f"calls of {name}" not in log:
                log[f"calls of {name}"] = calls_of(target, Path(folder))
            rows_of(target, log[f"calls of {name}"], log, args.log, args.seconds)
    rows = [r for name, r in log.items() if name.partition(".")[0] in args.targets]
    before = recorded(args.json)
    short = {name_of(r) for r in before if is_no_longer(r)}
    longer = [name_of(r) for r in rows if name_of(r) in short and not is_no_longer(r)]
    others = [r for r in before if r["target"] not in args.targets]
    finish("generated_streams", [*others, *rows], args.json)
    print(*shown(rows), sep="\n")
    print(*(f"longer than recorded: {k}" for k in longer), sep="\n", end="\n" if longer else "")
    return int(bool(longer))


if __name__ == "__main__":
    raise SystemExit(main())
