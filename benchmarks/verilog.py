"""What of each accelerator is in its Verilog, is it proved, do golden and random programs run in Icarus, is a planted fault found?

A planted fault is one change of the text, drawn by seed: an operator, a constant, a name, a width, a target, or a statement
left out. A text that is proved all the same means what the model says; such changes are listed with their line. With
`--json FILE` it goes on where it ended, at the same commit.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from record import ROOT, Row, commit, finish, options, recorded

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "emit"), str(ROOT / "tests" / "ila_models")]

import icarus  # noqa: E402
from test_emit_verilog import commands_of, compared_on  # noqa: E402
from test_vta import BASE, random_program  # noqa: E402
from vectors import arrays, traces  # noqa: E402

from rewrite_compiler.emit.rtl.emit import verilog_device  # noqa: E402
from rewrite_compiler.emit.rtl.readback_check import check_verilog  # noqa: E402
from rewrite_compiler.errors import FlexmatchError  # noqa: E402
from rewrite_compiler.ila import Ila, ila  # noqa: E402

NAMES = ("vta", "flexasr", "hlscnn")
COMMANDS = 1500  # of a trace of a bus
PROGRAMS = 20  # random ones for each behaviour of VTA
PAIRS = (("+", "-"), ("<", "<="), ("==", "!="), ("&", "|"), ("<<<", ">>>"))
OTHER = {f" {a} ": f" {b} " for x, y in PAIRS for a, b in ((x, y), (y, x))} | {" * ": " + "}
SECONDS = 10.0
ONCE = b"    initial begin\n"
# random programs read weights that were never loaded
WEIGHTS = b"        for (word = 0; word < 262144; word = word + 1) dut.m_wgt.words[word] = 0;\n"


def text_of(m: Ila) -> str:
    """Return the module of a model."""
    return verilog_device(m).files[f"{m.name}_device.v"].decode()


def proved(name: str) -> Row:
    """Count what is in the text, and prove every part."""
    m = ila(name)
    device, started = verilog_device(m), time.process_time()
    judgements = list(check_verilog(text_of(m), m, name))
    return {
        "instructions": len(device.instructions), "left_out": dict(device.omitted), "clocks": sum(device.clock_counts.values()),
        "parts": len(judgements),
        "proved_parts": sum(j.verdict.outcome == "proved" for j in judgements), "bounded": [j.part for j in judgements if j.bounded],
        "proof_cpu_seconds": time.process_time() - started,
    }  # fmt: skip


def simulated(name: str) -> Row:
    """Run the golden traces in Icarus: VTA's whole, the others' without the instructions that are left out; memories have all words."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        runs = [*_programs(where), *_random(where)] if name == "vta" else list(_bus(name, where))
    different = [trace for trace, is_same in runs if not is_same]
    return {"traces": len(runs), "different_traces": different}


def _programs(folder: Path) -> Iterator[tuple[str, bool]]:
    images, bench = arrays("vta", "images.npz"), icarus.compiled(verilog_device(ila("vta")).files, folder)
    for trace, program in traces("vta").items():
        if f"{trace}.dram_before" not in images:
            continue
        words = [int(w, 16) for w in program["instructions_hex"]]
        rows, after = icarus.run_words(bench, words, images[f"{trace}.dram_before"].tobytes(), program["phys_base"])
        is_quiet = all(row[3:] == [0, 0] for row in rows)
        yield trace, is_quiet and after == images[f"{trace}.dram_after"].tobytes()


def _random(folder: Path) -> Iterator[tuple[str, bool]]:
    """Run random programs, with loops, padding and rows that overlap, beside the loops of the specification."""
    for behaviour in ("fsim", "hls", "ila"):
        files = verilog_device(ila("vta", behaviour=behaviour)).files
        bench = icarus.compiled(
            {path: data.replace(ONCE, ONCE + WEIGHTS) if path.endswith("bench.v") else data for path, data in files.items()},
            folder / behaviour,
        )
        for seed in range(PROGRAMS):
            image, program, expected = random_program(seed, behaviour)
            rows, after = icarus.run_words(bench, program, image, BASE)
            yield f"random {behaviour} {seed}", all(row[3] == 0 for row in rows) and after == expected


def _bus(name: str, folder: Path) -> Iterator[tuple[str, bool]]:
    benches = dict[str, tuple[Ila, Path, Collection[str]]]()
    for trace, vector in traces(name).items():
        revision = vector["design"] if name == "hlscnn" else ""
        if revision not in benches:
            m = ila(name, revision=revision) if revision else ila(name)
            device = verilog_device(m)
            benches[revision] = (m, icarus.compiled(device.files, folder / (revision or name)), device.omitted)
        m, bench, omitted = benches[revision]
        try:
            compared_on(bench, omitted, m, list(commands_of(name, vector))[:COMMANDS])
        except AssertionError:
            yield trace, False
            continue
        yield trace, True


@dataclass(frozen=True)
class _Fault:
    """One changed line of a part."""

    part: str
    at: int  # the line's number, from 0
    before: str
    after: str


def planted(name: str, count: int) -> Row:
    """Plant faults and tell what the check says of the part that has each; `words` with all parts, if they stay as they are."""
    m = ila(name)
    lines = text_of(m).split("\n")
    faults = list(_drawn(lines, m, random.Random(9), count))
    answers = dict[_Fault, str]()
    while waiting := [f for f in faults if f not in answers]:
        first_of_part = {f.part: f for f in reversed(waiting)}
        alone = first_of_part.pop("words", None)
        answers |= _answers(lines, m, [*first_of_part.values()])
        answers |= _answers(lines, m, [alone]) if alone else {}
    found = [f for f, answer in answers.items() if answer in ("refuted", "refused")]
    return {
        "faults": count,
        "faults_found": len(found),
        "faults_by_answer": dict(Counter(answers.values())),
        "not_found": [
            f"{f.part}, line {f.at + 1}: {f.before.strip()} -> {f.after.strip()} ({answers[f]})" for f in faults if f not in found
        ],
    }


def _drawn(lines: list[str], m: Ila, draw: random.Random, count: int) -> Iterator[_Fault]:
    spans, drawn = _parts_of(lines, m), set[_Fault]()
    while len(drawn) < count:
        part, first, last = draw.choice(spans)
        at = draw.randrange(first, last)
        changed = draw.choice(KINDS)(draw, lines, first, last, at)
        if changed is None or changed == lines[at] or (fault := _Fault(part, at, lines[at], changed)) in drawn:
            continue
        drawn.add(fault)
        yield fault


def _answers(lines: list[str], m: Ila, faults: list[_Fault]) -> dict[_Fault, str]:
    """Judge faults of as many parts in one text; where it is refused as a whole, each half by itself."""
    wrong = {f.at: f.after for f in faults}
    parts = {f.part for f in faults}
    try:
        text = "\n".join(wrong.get(n, line) for n, line in enumerate(lines))
        judgements = [*check_verilog(text, m, seconds=SECONDS, only=parts - {"words"})]
    except FlexmatchError:
        judgements = []
    outcomes = {j.part: str(j.verdict.outcome) for j in judgements}
    if len(faults) == 1:
        return {faults[0]: next((x for x in outcomes.values() if x != "proved"), "proved") if judgements else "refused"}
    if outcomes.get("words") != "proved":
        half = len(faults) // 2
        return _answers(lines, m, faults[:half]) | _answers(lines, m, faults[half:])
    return {f: outcomes[f.part] for f in faults}


def _parts_of(lines: list[str], m: Ila) -> list[tuple[str, int, int]]:
    """Return the parts with their first line and the one after their last; `words` is the head of the module."""
    parts = list[tuple[str, int, int]]()
    clocks = dict(_clocks("\n".join(lines), m))
    starts = [(n, x[1]) for n, line in enumerate(lines) if (x := re.match(r" {12}(?:\d+: )?begin : (do_\w+|clock_\d+|decode)$", line))]
    for n, label in starts:
        part = "decode" if label == "decode" else clocks[int(label[6:])] if label.startswith("clock_") else label[3:]
        end = lines.index(" " * 12 + "end", n)
        if end > n + 1:
            parts.append((part, n + 1, end))
    head = next(n for n, line in enumerate(lines) if line.startswith("module"))
    return [*parts, ("words", head, starts[0][0])]


def _clocks(text: str, m: Ila) -> Iterator[tuple[int, str]]:
    numbers = iter(int(n) for n in re.findall(r"begin : clock_(\d+)\n", text))
    for name, count in verilog_device(m).clock_counts.items():
        yield from ((n := next(numbers), f"clock {n} of {name}") for _ in range(count))


# -- changes of a line


def _operator(draw: random.Random, lines: list[str], first: int, last: int, at: int) -> str | None:
    operators = [o for o in OTHER if o in lines[at].split(";")[0]]
    return lines[at].replace(o := draw.choice(operators), OTHER[o], 1) if operators else None


def _constant(draw: random.Random, lines: list[str], first: int, last: int, at: int) -> str | None:
    places = list(re.finditer(r"(?<='sd)\d+|(?<=\[)\d+(?=:0\] *;)|= \d+(?=;)", lines[at]))
    if not places:
        return None
    x = draw.choice(places)
    number = int(x[0].removeprefix("= "))
    return lines[at][: x.end() - len(str(number))] + str(max(0, number + draw.choice((-1, 1)))) + lines[at][x.end() :]


def _name(draw: random.Random, lines: list[str], first: int, last: int, at: int) -> str | None:
    names = re.findall(r"\breg [^;]*?(\w+)(?: \[[^;]*)?;", "\n".join(lines[first:last]))
    match = re.match(r"( *[\w\[\]]+ = .*?)\b([tvsrm]\w*\d\w*)\b(.*;)$", lines[at])
    return f"{match[1]}{draw.choice(names)}{match[3]}" if match and names else None


def _width(draw: random.Random, lines: list[str], first: int, last: int, at: int) -> str | None:
    if (x := re.search(r"\[(\d+):0\] (?=\w)", lines[at])) is None:
        return None
    return lines[at][: x.start(1)] + str(max(0, int(x[1]) - 1)) + lines[at][x.end(1) :]


def _target(draw: random.Random, lines: list[str], first: int, last: int, at: int) -> str | None:
    targets = re.findall(r"^ +([a-z]\w*) = ", "\n".join(lines[first:last]), re.MULTILINE)
    x = re.match(r"( +)([a-z]\w*)( = .*;)$", lines[at])
    return f"{x[1]}{draw.choice(targets)}{x[3]}" if x and targets else None


def _missing(draw: random.Random, lines: list[str], first: int, last: int, at: int) -> str | None:
    return "" if re.match(r" +[a-z]\w*(\[\w+\])? = .*;$", lines[at]) else None


KINDS = (_operator, _constant, _name, _width, _target, _missing)


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--faults", type=int, default=100, metavar="N", help="planted in each text (default: %(default)s)")
    args = parser.parse_args()
    measured = {"proved": proved, "simulated": simulated, "planted": lambda name: planted(name, args.faults)}
    rows = [row for row in recorded(args.json) if row["commit"] == commit()]
    for name in NAMES:
        row = next((row for row in rows if row["name"] == name), {"name": name, "commit": commit()})
        rows = [*(r for r in rows if r is not row), row]
        for step, measure in measured.items():
            if step in row:
                continue
            row[step] = shown = measure(name)
            print(name, step, *(f"{key} {x}" for key, x in shown.items() if key not in ("left_out", "not_found")), sep="  ", flush=True)
            finish("verilog", rows, args.json)


if __name__ == "__main__":
    main()
