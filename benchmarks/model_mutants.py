"""Is a driver that follows from a wrong model wrong? Single changes of models: widths of fields, strides, depths of buffers, lanes.

    python benchmarks/model_mutants.py --json benchmarks/results/model_mutants.json

A mutant is a target file without drivers with one number or operator of its model changed. It is *refused* (its file, its model, or
by the scheduler), *noticed* by the check of models, or its generated drivers run and *give the numerics* on random codes; one whose
driver gives other codes is wrong and ends the script with 1.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from record import ROOT, Row, finish, options

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ila.verification.check import check
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.sched.driver.generation import Request, program_of
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import Target, load_target, simulated_device

FIELD = re.compile(r"\b(\d+):(\d+)(?= \w)")
OPERATORS = {" + ": " - ", " * ": " + ", " % ": " + ", " >> ": " << "}
MAGNITUDES = (0.5, 3.0, 40.0, 40.0)


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind of each single change of a model, and the text with it."""
    first, last = text.index("def build("), text.index("\ntarget = ")
    sizes = re.search(r"^[A-Z, ]+ = ([\d, ]+)", text, re.MULTILINE)
    if sizes is not None:
        for n in re.finditer(r"\d+", sizes[1]):
            at, end = sizes.start(1) + n.start(), sizes.start(1) + n.end()
            yield from (("size", f"{text[:at]}{x}{text[end:]}") for x in (int(n[0]) // 2, int(n[0]) - 1))
    for m in FIELD.finditer(text, first, last):
        yield "field", f"{text[: m.start()]}{int(m[1]) - 1}:{m[2]}{text[m.end() :]}"
        yield "field", f"{text[: m.start()]}{m[1]}:{int(m[2]) + 1}{text[m.end() :]}"
    for old, new in OPERATORS.items():
        for m in re.finditer(re.escape(old), text[first:last]):
            at = first + m.start()
            yield "operator", f"{text[:at]}{new}{text[at + len(old) :]}"


def outcome(path: Path) -> str:
    """Return what becomes of a mutant."""
    try:
        target = load_target(str(path))
        if check(target.ila()).problems:
            return "noticed"
        results = [driver_outcome(target, m) for m in target.mappings.values()]
    except (FlexmatchError, ValueError, TypeError, IndexError, ZeroDivisionError):
        return "refused"
    return "wrong" if "wrong" in results else "refused" if "refused" in results else "right"


def driver_outcome(target: Target, m: Operation) -> str:
    """Return whether the driver of an operation gives its numerics at every trial."""
    for at in m.trials[:2]:
        shapes = {v.name: tuple(at[d] for d in m.axes.of[v.name]) for v in m.operands}
        r = Request(m, shapes, m.formats_for(dict(zip(m.format_choices, MAGNITUDES, strict=False))), {n: at[n] for n, _ in m.statics})
        try:
            program = program_of(target.ila(), r)
        except FlexmatchError:
            return "refused"
        random = np.random.default_rng(7)
        for _ in range(3):
            codes = {leaf.name: random.integers(*leaf.interval, leaf.shape, endpoint=True) for leaf in r.leaves}  # type: ignore[arg-type]
            result = program.run(simulated_device(target.ila()), codes, {n: len(s) for n, s in shapes.items()})
            if not np.array_equal(result, evaluate(r.term, {leaf: codes[leaf.name] for leaf in r.leaves})):
                return "wrong"
    return "right"


def main() -> int:
    """Judge the mutants of the files; return 1 when a driver is wrong."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="target files without drivers (default: those of the tests)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth mutant alone (default: all)")
    args = parser.parse_args()
    rows: list[Row] = []
    wrong = 0
    for file in args.files or sorted((ROOT / "tests/sched/accelerators").glob("*.py")):
        counts: Counter[tuple[str, str]] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            for n, (kind, text) in enumerate(mutants(file.read_text("utf-8"))):
                if n % args.every == 0:
                    path = Path(folder) / f"m{n}_{file.name}"
                    path.write_text(text, "utf-8")
                    found = outcome(path)
                    counts[kind, found] += 1
                    wrong += found == "wrong"
                    print(file.name, n, kind, found, flush=True)
        rows += [{"file": file.stem, "kind": kind, "outcome": o, "mutants": n} for (kind, o), n in sorted(counts.items())]
    for row in rows:
        print(*row.values())
    finish("model_mutants", rows, args.json)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
