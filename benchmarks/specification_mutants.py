"""Is a wrong specification noticed? Single changes of accelerators' models: fields, strides, depths, lanes, operators.

    python benchmarks/specification_mutants.py --sample 40 --log mutants.json --json benchmarks/results/specification_mutants.json

A mutant is a copy of a model's package with one number or operator changed, drawn by seed. It is *refused* where it cannot be built,
or noticed by the first test of the model, or of the target's drivers, that fails with it: these tests have the check of the model,
the published vectors, and drivers beside their numerics. One that all tests pass is *missed*, and ends the script with 1.
An unchanged copy is judged first: all tests must pass with it, and a mutant may take several times as long.
With `--log FILE` a call goes on where the last one ended and judges those again that were missed, as tests were written since;
`--reasons FILE` (JSON: the mutant, as printed, → a sentence) says which of them are the same machine, and why. With `--json FILE`
the rows of other models stay.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import re
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from record import ROOT, Row, commit, finish, options, recorded

PROGRAMS = "programs.py"  # how words are put together: no part of what a machine is
TESTS = {
    "genesys": (
        ("tests/ila_models/test_genesys.py", "tests/ila_models/test_genesys_programs.py"),
        ("tests/targets/test_machines.py", "tests/targets/test_genesys_target.py"),
    ),
    "hvx": (("tests/ila_models/test_hvx.py",), ("tests/targets/test_machines.py",)),
    "hlscnn": (
        ("tests/ila_models/test_hlscnn.py", "tests/ila_models/test_hlscnn_convolution.py"),
        ("tests/targets/test_hlscnn_target.py",),
    ),
    "vta": (("tests/ila_models/test_vta.py",), ("tests/targets/test_vta_target.py", "tests/targets/test_vta_alu.py")),
}
LEFT_OUT = ("native", "arrays", "network", "application", "follow")  # other readings, and models compiled whole: minutes for each mutant
FIELD = re.compile(r"Bits\((\d+), (\d+)")
SIZE = re.compile(r"(?<=[ (=,\[])(\d+)(?=[,)\] \n:])")
OPERATORS = {" + ": " - ", " - ": " + ", " * ": " + ", " % ": " + ", " // ": " * ", " >> ": " << ", " << ": " >> ", " == ": " != "}
REFUSED, MISSED, ENDLESS = "not built", "missed", "ended by the limit of time"
SECONDS, TIMES = 600, 3  # of processor time of an unchanged copy, and how many times as long a mutant, which may not end, may take


class Mutant(NamedTuple):
    """A file of a model with one change."""

    name: str
    file: str
    text: str


def mutants(accelerator: str) -> Iterator[Mutant]:
    """Yield every single change of a model; its name has the line as it reads then."""
    for file in sorted((ROOT / "ila_models" / accelerator).glob("*.py")):
        if file.name == PROGRAMS:
            continue
        for kind, line, text in changes(file.read_text("utf-8")):
            yield Mutant(f"{accelerator}/{file.name}:{line} {kind}: {text.splitlines()[line - 1].strip()}", file.name, text)


def changes(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield the kind of each single change of a module's code, its line, and the text with it."""
    for m in FIELD.finditer(text):
        for old, new in ((m[0], f"Bits({int(m[1]) + 1}, {m[2]}"), (m[0], f"Bits({m[1]}, {int(m[2]) - 1}")):
            yield "field", *_changed(text, m.start(), old, new)
    code = [(at, line) for at, line in _lines(text) if not line.lstrip().startswith(('"""', "#", "from ", "import "))]
    for at, line in code:
        body = line.split("  #")[0]
        for m in SIZE.finditer(body):
            if "Bits(" not in body:
                yield "number", *_changed(text, at + m.start(), m[0], str(int(m[0]) + 1))
        for old, new in OPERATORS.items():
            for m in re.finditer(re.escape(old), body):
                yield "operator", *_changed(text, at + m.start(), old, new)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    at, is_text = 0, False
    for line in text.splitlines(keepends=True):
        marks = line.count('"""')
        if not is_text and not marks:
            yield at, line
        is_text ^= marks % 2 == 1
        at += len(line)


def _changed(text: str, at: int, old: str, new: str) -> tuple[int, str]:
    assert text.startswith(old, at)
    return text.count("\n", 0, at) + 1, text[:at] + new + text[at + len(old) :]


def outcome(accelerator: str, file: str, text: str, seconds: int = SECONDS) -> str:
    """Return what notices a mutant, in a process of its own that has so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "ila_models" / accelerator, Path(folder) / accelerator)
        (Path(folder) / accelerator / file).write_text(text, "utf-8")
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            try:
                found = _outcome(accelerator, folder)
            except BaseException as e:
                found = f"{REFUSED}: {type(e).__name__}"
            os.write(write, found.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as answer:
            found = answer.read().decode()
        os.waitpid(pid, 0)
        return found or ENDLESS


def _outcome(accelerator: str, folder: str) -> str:
    import pytest

    import rewrite_compiler.ila_models as models

    os.environ["FLEXMATCH_CACHE"] = str(Path(folder) / "cache")
    models.__path__ = [folder, *models.__path__]
    __import__(f"rewrite_compiler.ila_models.{accelerator}")
    package = sys.modules[f"rewrite_compiler.ila_models.{accelerator}"]
    assert str(package.__file__).startswith(folder), package.__file__
    package.build()
    failed: list[str] = []

    class Watch:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid.rpartition("::")[2])

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                failed.append(f"collecting {report.nodeid}")

    selected = " and not ".join((accelerator, *LEFT_OUT))
    for files in TESTS[accelerator]:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            chosen = [str(ROOT / file) for file in files]
            code = pytest.main(
                ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-k", selected, *chosen],
                plugins=[Watch()],
            )
        if failed or code:
            return failed[0] if failed else f"pytest ends with {int(code)}"
    return MISSED


def usual_seconds(accelerator: str) -> int:
    """Return the seconds that the tests take with an unchanged copy, or end the script where one does not pass."""
    file = ROOT / "ila_models" / accelerator / "__init__.py"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = outcome(accelerator, file.name, file.read_text("utf-8"))
    if found != MISSED:
        raise SystemExit(f"{accelerator}: an unchanged copy does not pass: {found}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return math.ceil(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def row_of(accelerator: str, outcomes: dict[str, str], of: int, seed: int, reasons: dict[str, str]) -> Row:
    """Return the figures of a model, with the mutants that no test notices by name."""
    missed = [name for name, o in outcomes.items() if o == MISSED]
    built = {name: o for name, o in outcomes.items() if not o.startswith(REFUSED)}
    return {
        "model": accelerator, "commit": commit(), "mutants": len(outcomes), "of": of, "seed": seed, "not_built": len(outcomes) - len(built),
        "noticed": len(built) - len(missed), "same_machine": {name: reasons[name] for name in missed if name in reasons},
        "missed": [name for name in missed if name not in reasons],
        "noticed_by": dict(Counter(o.partition("[")[0] for o in built.values() if o != MISSED).most_common()),
    }  # fmt: skip


def main() -> int:
    """Judge the mutants; return 1 when one is missed."""
    import rewrite_compiler.cosim  # once, for all forks
    import rewrite_compiler.prove.mappings.mappings  # noqa: F401

    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="mutants of each model (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=30, metavar="N")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep what is found there, and go on from it")
    parser.add_argument("--reasons", type=Path, metavar="FILE", help="which missed mutants are the same machine, and why (JSON)")
    parser.add_argument("accelerators", nargs="*", default=list(TESTS))
    args = parser.parse_args()
    reasons: dict[str, str] = json.loads(args.reasons.read_text("utf-8")) if args.reasons else {}
    outcomes: dict[str, str] = json.loads(args.log.read_text("utf-8")) if args.log and args.log.exists() else {}
    rows: list[Row] = []
    for accelerator in args.accelerators:
        every = list(mutants(accelerator))
        drawn = {m.name: m for m in random.Random(args.seed).sample(every, min(args.sample, len(every)))}
        known = {name for name, o in outcomes.items() if o != MISSED or name in reasons}
        left = [m for m in drawn.values() if m.name not in known]
        seconds = TIMES * usual_seconds(accelerator) if left else 0
        for m in left:
            outcomes[m.name] = outcome(accelerator, m.file, m.text, seconds)
            print(f"{m.name}: {outcomes[m.name]}", flush=True)
            if args.log:
                args.log.write_text(json.dumps(outcomes, indent=1) + "\n", "utf-8")
        rows.append(row_of(accelerator, {name: outcomes.get(name, MISSED) for name in drawn}, len(every), args.seed, reasons))
        if foreign := sorted(name for name in reasons if name in drawn and outcomes.get(name, MISSED) != MISSED):
            raise SystemExit(f"this mutant has a reason but was noticed: {foreign[0]}")
    others = [row for row in recorded(args.json) if row["model"] not in args.accelerators]
    finish("specification_mutants", [*others, *rows], args.json)
    return any(row["missed"] for row in rows)


if __name__ == "__main__":
    raise SystemExit(main())
