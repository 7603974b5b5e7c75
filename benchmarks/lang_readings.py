"""One term, many readings: what a product, a fold, a code, a proof and the check of a model cost in each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from record import Row, finish, options, spread

from rewrite_compiler.ila.verification.check import check
from rewrite_compiler.ila_models import flexasr
from rewrite_compiler.lang import BFLOAT16, AdaptivFloat, Array, Expr, Fixed, Leaf, array, clz, fold, reduce_sum, sat, shift_right, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.step import update
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.kernels.format_conversion import codes_of
from rewrite_compiler.readings.native.printer import NativeFunction
from rewrite_compiler.readings.oracle.emit_python import StepFunction
from rewrite_compiler.readings.smt.bitvector_evaluator import evaluator_for
from rewrite_compiler.readings.smt.evaluator import prove_equal

BYTE, SEED, BUDGET = iv.of_width(8, True), 7, 10.0
ROWS, LENGTH, COLUMNS = 64, 256, 32


@dataclass(frozen=True)
class Case:
    """One thing measured: `run` is timed, `count` things of the kind `unit` happen in it."""

    name: str
    unit: str
    count: int
    run: Callable[[], object]
    note: str = ""


def operands() -> tuple[Leaf, Leaf, np.ndarray, np.ndarray]:
    """Return two operands and what they hold."""
    rng = np.random.default_rng(SEED)
    x, y = Leaf((ROWS, LENGTH), BYTE, False, "x"), Leaf((COLUMNS, LENGTH), BYTE, False, "y")
    return x, y, *(rng.integers(-128, 128, leaf.shape) for leaf in (x, y))


def readings() -> list[Case]:
    """A wrapping product, and a fold of rounded and saturated blocks of eight; all readings give the same answer."""
    x, y, a, b = operands()

    def product(i: Expr, j: Expr) -> Expr:
        return wrap(reduce_sum(lambda c: x[i, c] * y[j, c], LENGTH), 32)

    def blocks(i: Expr, j: Expr) -> Expr:
        def step(k: Expr, total: Expr) -> Expr:
            lanes = reduce_sum(lambda c: x[i, k * 8 + c] * y[j, k * 8 + c], 8)
            return sat(total + sat(shift_right(lanes, 6, "half_up"), 16), 16)

        return fold(LENGTH // 8, 0, step, iv.of_width(16, True))

    cases = []
    for name, element in (("product, 32 bits wrapping", product), ("fold of blocks, 16 bits saturating", blocks)):
        cases += each(name, array(element, (ROWS, COLUMNS)), {x: a, y: b})
    return cases


def each(name: str, term: Array, inputs: dict[Leaf, np.ndarray]) -> list[Case]:
    """Return a term as generated Python, as arrays and as machine code, their answers compared."""
    out = Leaf(term.shape, term.interval, False, "out")
    step = update(out, (ROWS, COLUMNS), lambda i, j: ((i, j), term[i, j]))
    compiled = StepFunction(step)
    lists = {leaf: data.reshape(-1).tolist() for leaf, data in inputs.items()} | {out: [0] * (ROWS * COLUMNS)}

    def oracle() -> None:
        compiled([lists[leaf] for leaf in compiled.memories])

    oracle()
    if lists[out] != evaluate(term, inputs).reshape(-1).tolist():
        raise SystemExit(f"{name}: the oracle and the arrays differ")
    machine = NativeFunction(step)
    memories = {leaf: data.astype(np.int8) for leaf, data in inputs.items()} | {out: np.zeros(term.shape, storage_dtype(term.interval))}

    def native() -> None:
        machine([memories[leaf] for leaf in machine.memories])

    native()
    if memories[out].reshape(-1).tolist() != lists[out]:
        raise SystemExit(f"{name}: the oracle and the machine code differ")
    runs = {"oracle": oracle, "arrays": lambda: evaluate(term, inputs), "native": native}
    return [Case(f"{name}: {reading}", "MAC", ROWS * LENGTH * COLUMNS, run) for reading, run in runs.items()]


def codes() -> list[Case]:
    """Encoders of whole arrays."""
    values = np.random.default_rng(SEED).standard_normal(1 << 20).astype(np.float32)
    formats = (AdaptivFloat(bias=6), BFLOAT16, Fixed(16, 7), Fixed(8, 6, "floor"))
    return [Case(f"encode {f}", "element", values.size, lambda f=f: codes_of(f, values)) for f in formats]


def proofs() -> list[Case]:
    """Identities about bits, on unbounded integers and on words; a proof that is not found says so."""
    x, y = Leaf((), (0, 255), False, "x"), Leaf((), (0, 255), False, "y")
    a, b = x[()], y[()]
    claims = {
        "(x ^ y) ^ y = x": ((a ^ b) ^ b, a),
        "(x & y) + (x | y) = x + y": ((a & b) + (a | b), a + b),
        "x & 15 = x mod 16": (a & 15, a % 16),
        "clz(x | 1) ≤ 7": (clz(a | 1, 8) <= 7, a <= 255),
        "x · y wraps to 16 bits": (wrap(a * b, 16, False) & 255, wrap(a * b, 8, False)),
    }
    cases = []
    for name, (left, right) in claims.items():
        for bits in (False, True):
            outcome = proved(left, right, (x, y), bits)
            engine = "words" if bits else "integers"
            cases.append(Case(f"{name}: {engine}", "proof", 1, lambda a=left, b=right, w=bits: proved(a, b, (x, y), w), outcome))
    return cases


def proved(left: Expr, right: Expr, leaves: tuple[Leaf, ...], bits: bool) -> str:
    """Return the outcome of a proof."""
    reading, premises = evaluator_for([left, right], leaves, bits=bits)
    return prove_equal([(reading.value(left), reading.value(right))], premises, BUDGET).outcome


def checks() -> list[Case]:
    """The check of FlexASR: disjoint decodes, holes, widths, indices, binding times."""
    model = flexasr.build()
    return [Case("check flexasr", "instruction", len(model.instructions), lambda: check(model))]


def measure(cases: list[Case], runs: int) -> list[Row]:
    """Run all cases in turn; the first round is not counted."""
    seconds: dict[str, list[float]] = {c.name: [] for c in cases}
    for n in range(runs + 1):
        for c in cases:
            start = time.thread_time()
            c.run()
            if n:
                seconds[c.name].append(time.thread_time() - start)
    return [
        {
            "name": c.name,
            "runs": runs,
            "unit": c.unit,
            "count": c.count,
            "outcome": c.note,
            "seed": SEED,
            "cpu_seconds": spread(seconds[c.name]),
        }
        for c in cases
    ]


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=5).parse_args()
    rows = measure([*readings(), *codes(), *proofs(), *checks()], args.runs)
    print(f"{'what':64}{'CPU median':>14}{'each':>16}")
    for row in rows:
        cpu, count = row["cpu_seconds"], row["count"]
        assert isinstance(cpu, dict)
        assert isinstance(count, int)
        print(f"{row['name']!s:64}{cpu['median']:12.4f} s{cpu['median'] / count * 1e9:13.1f} ns/{row['unit']} {row['outcome']}")
    finish("lang_readings", rows, args.json)


if __name__ == "__main__":
    main()
