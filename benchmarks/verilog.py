"""What of each accelerator is in its Verilog, is it proved, do golden and random programs run in Icarus, is a planted fault found?

A planted fault is one change of the text, drawn by seed: an operator, a constant, a name, a width, a target, or a statement
left out. A text that is proved all the same means what the model says; such changes are listed with their line. With
`--json FILE` it goes on where it ended.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from record import ROOT, Row, commit, finish, options, recorded

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "emit"), str(ROOT / "tests" / "ila_models")]

import icarus  # noqa: E402
from test_emit_verilog import commands_of, compared  # noqa: E402
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
    """Run the golden traces in Icarus: VTA's whole, the others' without the instructions that are left out."""
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
    for n, (trace, vector) in enumerate(traces(name).items()):
        m = ila(name, revision=vector["design"]) if name == "hlscnn" else ila(name)
        try:
            compared(m, list(commands_of(name, vector))[:COMMANDS], folder / str(n))
        except AssertionError:
            yield trace, False
            continue
        yield trace, True


def planted(name: str, count: int) -> Row:
    """Plant faults, one at a time, and tell what the check says of the part that has it."""
    m, draw = ila(name), random.Random(9)
    text = text_of(m)
    lines, spans = text.split("\n"), _parts_of(text, m)
    answer_counts: dict[str, int] = {}
    survivors = list[str]()
    while sum(answer_counts.values()) < count:
        part, first, last = draw.choice(spans)
        at = draw.randrange(first, last)
        changed = draw.choice(KINDS)(draw, lines, first, last, at)
        if changed is None or changed == lines[at]:
            continue
        wrong = "\n".join([*lines[:at], changed, *lines[at + 1 :]])
        answer = _answer(wrong, m, {part})
        answer = _answer(wrong, m, set()) if answer == "proved" else answer  # a line may belong to another part
        answer_counts[answer] = answer_counts.get(answer, 0) + 1
        if answer not in ("refuted", "refused"):
            survivors.append(f"{part}, line {at + 1}: {lines[at].strip()} -> {changed.strip()} ({answer})")
    return {
        "faults": count,
        "faults_found": answer_counts.get("refuted", 0) + answer_counts.get("refused", 0),
        "faults_by_answer": answer_counts,
        "not_found": survivors,
    }


def _parts_of(text: str, m: Ila) -> list[tuple[str, int, int]]:
    """Return the parts with their first and last line; `words` is the head of the module."""
    names, parts = [*m.instructions], list[tuple[str, int, int]]()
    clocks = dict(_clocks(text, m))
    lines = text.split("\n")
    starts = [(n, line) for n, line in enumerate(lines) if re.match(r" {12}(\d+: )?begin : (do_|clock_|decode)", line)]
    for (n, line), (after, _) in zip(starts, [*starts[1:], (len(lines) - 8, "")], strict=True):
        label = re.sub(r".*begin : ", "", line)
        part = "decode" if label == "decode" else clocks[int(label[6:])] if label.startswith("clock_") else label[3:]
        if after - 1 > n + 1 and (part == "decode" or part in names or part in clocks.values()):
            parts.append((part, n + 1, after - 1))
    head = next(n for n, line in enumerate(lines) if line.startswith("module"))
    return [*parts, ("words", head, starts[0][0])]


def _clocks(text: str, m: Ila) -> Iterator[tuple[int, str]]:
    numbers = iter(int(n) for n in re.findall(r"begin : clock_(\d+)\n", text))
    for name, count in verilog_device(m).clock_counts.items():
        yield from ((n := next(numbers), f"clock {n} of {name}") for _ in range(count))


def _answer(text: str, m: Ila, only: set[str]) -> str:
    try:
        outcomes = [j.verdict.outcome for j in check_verilog(text, m, seconds=SECONDS, only=only)]
    except FlexmatchError:
        return "refused"
    return next((o for o in outcomes if o != "proved"), "proved")


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
    rows = recorded(args.json)
    for name in NAMES:
        if any(row["name"] == name for row in rows):
            continue
        row: Row = {"name": name, **proved(name), **simulated(name), **planted(name, args.faults), "commit": commit()}
        rows.append(row)
        print(*(f"{key} {x}" for key, x in row.items() if key not in ("left_out", "not_found")), sep="  ", flush=True)
        finish("verilog", rows, args.json)


if __name__ == "__main__":
    main()
