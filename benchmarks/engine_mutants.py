"""Which faults planted in driver, numerics, rewrite or schedule of whole applications does co-simulation refuse, and when?

A mutant differs in one command of a driver (left out, or one bit of an operand), one node of the numerics, one node of a term after
its rewrites, or one number of a kernel's schedule or layout. The audit is that of `flexmatch cosim`: the first sample of a run and a
random one of every `--rate` batches run on the simulator. What is not refused is compared with the right results on all samples:
"no effect" there, or it escaped. Places are drawn by seed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from hashlib import blake2b
from typing import Any

import numpy as np
from record import Row, finish, options

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.compile.offload.specified import NumericsOffload, terms_of, unfolded_terms
from rewrite_compiler.cosim.cosimulate import dataset_for, with_formats
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.cosim.validation import audit
from rewrite_compiler.errors import AnswerNo, FlexmatchError
from rewrite_compiler.kernels import kernel as kernels
from rewrite_compiler.kernels import run as kernel_run
from rewrite_compiler.lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, reduction
from rewrite_compiler.lang.expr import Expr, binary, const, node
from rewrite_compiler.lang.traversal import terms_of as subterms_of

DESIGNS = ("hlscnn", "hlscnn:revision=ext16", "vta", "flexasr")
APPLICATIONS = (*(("digits_cnn", design) for design in DESIGNS), ("digits_mlp", "flexasr"))
BATCH, BATCHES, SEED = 8, 3, 11
OTHERS = {"add": "sub", "sub": "add", "min": "max", "max": "min", "mul": "add", "lt": "le", "le": "lt", "shl": "shr", "bitand": "bitor"}
Draw = random.Random


def changed_node(e: Expr, draw: Draw) -> Expr | None:
    """Return another term in place of a node; None where this one has no mutant."""
    if e.real:
        return None
    if e.op == "const":
        return const(int(e.data) + draw.choice((-1, 1)))
    if e.op in OTHERS:
        return node(OTHERS[e.op], e.args, e.data, e.interval, False)
    if e.op == "shr":
        return node("shr", (e.args[0], binary("add", e.args[1], 1)), None, e.interval, False)
    if e.op == "select":
        return node("select", (e.args[0], e.args[2], e.args[1]), None, e.interval, False)
    return None


class Mutation:
    """Replaces one node wherever it is in arrays of terms, inside of folds too."""

    def __init__(self, node_: Expr, other: Expr) -> None:
        """Replace `node_` by `other`."""
        self.results: dict[Expr, Expr] = {node_: other}
        self.folds: dict[Fold, Fold] = {}

    def term(self, e: Expr) -> Expr:
        """Return a term with the node replaced."""
        result = self.results.get(e)
        if result is None:
            result = self.results[e] = self._rebuilt(e)
        return result

    def _rebuilt(self, e: Expr) -> Expr:
        args, data = [self.term(a) for a in e.args], self.array(e.data) if e.op == "load" else e.data
        if data is e.data and all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        if e.op == "reduce":
            return reduction(e.data[0], e.data[1], tuple(args[1:]), args[0])
        return node(e.op, args, data, e.interval, e.real, data.free.union(*(a.free for a in args)) if e.op == "load" else None)

    def array(self, a: Any) -> Any:
        """Return an array with the node replaced."""
        if isinstance(a, Comprehension):
            body = self.term(a.body)
            return a if body is a.body else Comprehension(a.shape, a.interval, a.real, a.variables, body)
        if isinstance(a, FoldResult):
            f = a.fold
            if f not in self.folds:
                initial, bodies = tuple(map(self.array, f.initial)), tuple(map(self.array, f.bodies))
                same = all(x is y for x, y in zip((*initial, *bodies), (*f.initial, *f.bodies), strict=True))
                self.folds[f] = f if same else Fold(f.variable, self.term(f.extent), initial, f.accumulators, bodies)
            return a if self.folds[f] is f else FoldResult(a.shape, a.interval, a.real, self.folds[f], a.component, a.history)
        return a


def nodes_of(arrays: Sequence[Array]) -> list[Expr]:
    """Return every node of some arrays once, those inside of folds and of other arrays too."""
    visited: dict[Expr, None] = {}
    work: list[Array] = list(arrays)
    seen: set[Array] = set()
    while work:
        a = work.pop()
        if a in seen or isinstance(a, Accumulator) or type(a) is Leaf:
            continue
        seen.add(a)
        work += [*a.fold.initial, *a.fold.bodies] if isinstance(a, FoldResult) else []
        for e in subterms_of(a.body) if isinstance(a, Comprehension) else ():
            visited[e] = None
            work += [e.data] if e.op == "load" else []
    return list(visited)


def mutated(arrays: Sequence[Array], draw: Draw) -> tuple[list[Any], str]:
    """Return arrays with one node changed, and what it was."""
    nodes = [e for e in nodes_of(arrays) if e.op == "const" or e.op in OTHERS or e.op in ("shr", "select")]
    while nodes:
        e = draw.choice(nodes)
        other = changed_node(e, draw)
        if other is not None:
            mutation = Mutation(e, other)
            return [mutation.array(a) for a in arrays], f"{e.op} → {other.op}" if other.op != e.op else f"{e.op}, another operand"
        nodes.remove(e)
    return list(arrays), "nothing"


# -- kinds of mutants: context managers, in which an application runs with the fault


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Put another function in a place, as long as the context lasts."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


class FaultyDevice:
    """A device that changes one call of its driver: the command is left out, or one bit of one operand differs."""

    def __init__(self, device: Any, place: int, draw: Draw, log: list[str]) -> None:
        """Change call number `place`."""
        self.device, self.fault, self.draw, self.log, self.calls = device, place, draw, log, 0

    def __getattr__(self, name: str) -> Any:
        """Return what the device has."""
        return getattr(self.device, name)

    def issue(self, instruction: str, **operands: Any) -> Any:
        """Send one instruction."""
        return self._sent(self.device.issue, instruction, operands)

    def store(self, instruction: str, **operands: Any) -> Any:
        """Send one instruction for each row."""
        return self._sent(self.device.store, instruction, operands)

    def _sent(self, send: Callable[..., Any], instruction: str, operands: dict[str, Any]) -> Any:
        self.calls += 1
        if self.calls - 1 != self.fault:
            return send(instruction, **operands)
        names = sorted(n for n, x in operands.items() if np.size(x))
        if not names or not self.draw.randrange(4):
            self.log.append(f"{instruction} left out")
            return None
        name = self.draw.choice(names)
        x = np.array(operands[name])
        flat, bit = x.reshape(-1), self.draw.randrange(max(int(np.max(x)).bit_length(), 1))
        flat[self.draw.randrange(flat.size)] ^= 1 << bit
        self.log.append(f"{instruction}: bit {bit} of {name}")
        return send(instruction, **{**operands, name: int(x) if not x.ndim else x})


def driver_mutant(plan: Plan, draw: Draw, log: list[str], calls: int) -> Any:
    """Return the context of a driver with one command changed, of a sample: what it does wrong it does on drawn operands, too."""
    del plan
    make, place, context = audit.simulated_device, draw.randrange(calls), ExitStack()
    context.enter_context(patched(audit, "simulated_device", lambda ila, **how: FaultyDevice(make(ila, **how), place, draw, log)))
    context.enter_context(patched(audit.Audit, "_check_drawn", lambda *given: None))
    return context


def numerics_mutant(plan: Plan, draw: Draw, log: list[str], calls: int) -> Any:
    """Return the context of numerics with one node changed, in all offloads of one operation."""
    del calls
    mapping, seed = draw.choice(plan.offloads).mapping, draw.randrange(1 << 30)
    codes = mapping.codes
    assert codes is not None

    @wraps(codes)  # which parameters there are is seen in its signature
    def other(*operands: Any, **given: Any) -> Any:
        results = codes(*operands, **given)
        arrays, what = mutated(results if isinstance(results, tuple) else (results,), Draw(seed))
        log.append(f"{mapping.name}: {what}")
        return tuple(arrays) if isinstance(results, tuple) else arrays[0]

    return patched(mapping, "codes", other)


def rewrite_mutant(plan: Plan, draw: Draw, log: list[str], calls: int) -> Any:
    """Return the context of kernels of which one stage is another term after the rewrites."""
    del plan
    make, place, stage = kernel_run.kernel_of, draw.randrange(calls), [0]

    def other(value: Comprehension, features: frozenset[str] | None = None) -> Any:
        stage[0] += 1
        if stage[0] <= place or log:
            return make(value, features)
        (changed,), what = mutated([value], draw)
        log.extend([f"stage {stage[0] - 1}: {what}"] * (changed is not value))  # a copy has nothing to change: the next one
        return make(changed, features)

    return patched(kernel_run, "kernel_of", other)


def schedule_mutant(plan: Plan, draw: Draw, log: list[str], calls: int) -> Any:
    """Return the context of kernels of which one has a smaller extent or stride, or an operand packed in another order."""
    del plan
    make, place, stage = kernels.Kernel.__init__, draw.randrange(calls), [0]

    def other(self: Any, *given: Any) -> None:
        make(self, *given)
        stage[0] += 1
        places = [n for n, x in enumerate(self.numbers) if n and isinstance(x, int) and x > 0]
        if stage[0] - 1 == place and places:
            n = draw.choice(places)
            log.append(f"stage {place}: number {n} is {self.numbers[n] - 1}, not {self.numbers[n]}")
            self.numbers = tuple(x - 1 if m == n else x for m, x in enumerate(self.numbers))

    return patched(kernels.Kernel, "__init__", other)


KINDS: dict[str, Callable[[Plan, Draw, list[str], int], Any]] = {
    "driver": driver_mutant, "numerics": numerics_mutant, "rewrite": rewrite_mutant, "schedule": schedule_mutant,
}  # fmt: skip


class Application:
    """An application compiled for an accelerator, with its first batches and their right results."""

    def __init__(self, name: str, accelerator: str) -> None:
        """Compile and run it; count the places where mutants can be."""
        app = find_application(name)
        plan = compile_model(app.model, [accelerator])
        plan, data = with_formats(plan, dataset_for(plan, app.data), app.calibration)
        self.plan = replace(plan, offloads=tuple(replace(o, mapping=replace(o.mapping)) for o in plan.offloads))
        self.data, self.name = data, f"{name} on {accelerator}"
        self.calls = {"driver": 0, "rewrite": 0, "schedule": 0, "numerics": 1}
        devices: list[FaultyDevice] = []
        kernels_of_a_run: list[Any] = []
        make_device, make_kernel = audit.simulated_device, kernel_run.kernel_of

        def device(ila: Any, **how: Any) -> FaultyDevice:
            devices.append(FaultyDevice(make_device(ila, **how), -1, Draw(0), []))
            return devices[-1]

        def kernel(*given: Any) -> Any:
            kernels_of_a_run.append(given)
            return make_kernel(*given)

        with patched(kernel_run, "kernel_of", kernel):
            self.right, _ = self.run(1)
        with patched(audit, "simulated_device", device), patched(audit.Audit, "_check_drawn", lambda *given: None):
            self.run(1)
        self.calls["schedule"] = self.calls["rewrite"] = len(kernels_of_a_run)
        self.calls["driver"] = max(d.calls for d in devices)

    def run(self, rate: int, batches: int = BATCHES) -> tuple[list[bytes], int]:
        """Return digests of the results of all offloads, and in which batch an audit refused them (0: in none)."""
        terms_of.cache_clear()
        unfolded_terms.cache_clear()
        digests: list[bytes] = []
        call, check_drawn, drawn = NumericsOffload.call, audit.Audit._check_drawn, list[bool]()

        def recorded_call(self: NumericsOffload, *given: Any) -> Any:
            results = call(self, *given)
            if not drawn:
                digests.append(blake2b(b"".join(np.ascontiguousarray(y).tobytes() for y in results.values())).digest())
            return results

        def check_drawn_apart(*given: Any) -> None:
            drawn.append(True)
            check_drawn(*given)
            drawn.pop()

        with patched(NumericsOffload, "call", recorded_call), patched(audit.Audit, "_check_drawn", check_drawn_apart):
            engine = Engine(self.plan, reading="native", audit=rate, compared=0)
            for n in range(batches):
                try:
                    outcome = engine.batch(lambda part: self.data.rows(part).inputs, slice(n * BATCH, (n + 1) * BATCH))
                except AnswerNo:
                    return digests, n + 1
                digests += [np.ascontiguousarray(y).tobytes() for y in outcome.outputs.values()]
        return digests, 0


def judged(app: Application, kind: str, seed: int, rate: int) -> Row:
    """Return what becomes of one mutant."""
    log: list[str] = []
    started = time.process_time()
    row: Row = {"application": app.name, "kind": kind, "seed": seed}
    try:
        with KINDS[kind](app.plan, Draw(seed), log, app.calls[kind]):
            digests, batch = app.run(rate)
            if not batch and digests != app.right:  # what differs in few samples is refused as the rate says
                _, batch = app.run(rate, app.data.count // BATCH)
        verdict = f"refused in batch {batch}" if batch else "no effect" if digests == app.right else "escaped"
    except (FlexmatchError, ValueError, OverflowError, IndexError) as error:
        code = error.problem.code if isinstance(error, FlexmatchError) else type(error).__name__
        verdict = f"refused before results are compared: {code}"
    return {**row, "change": (log or ["none: the place does not run"])[0], "verdict": verdict,
            "cpu_seconds": round(time.process_time() - started, 2)}  # fmt: skip


def summary_of(rows: Sequence[Mapping[str, object]], rate: int) -> Row:
    """Return the counts of verdicts: in all, and by kind."""
    counts: Row = {"name": "summary", "mutants": len(rows), "batches": BATCHES, "batch": BATCH, "audit_every_batches": rate}
    for kind in (*KINDS, "all"):
        verdicts = [str(r["verdict"]) for r in rows if kind in (r["kind"], "all")]
        counts[kind] = {
            "refused in batch 1": sum(v == "refused in batch 1" or v.startswith("refused before") for v in verdicts),
            "refused by the rate": sum(v.startswith("refused in batch") and v != "refused in batch 1" for v in verdicts),
            "no effect": verdicts.count("no effect"), "escaped": verdicts.count("escaped"),
        }  # fmt: skip
    return counts


def mutants(count: int) -> list[tuple[tuple[str, str], str, int]]:
    """Return application, kind and seed of so many mutants, an application's one after the other."""
    pairs = [(a, k) for a in APPLICATIONS for k in KINDS]
    return [(a, k, SEED + n) for a, k in pairs for n in range(-(-count // len(pairs)))]


def main() -> None:
    """Judge the mutants."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--count", type=int, default=200, metavar="N", help="mutants, rounded up (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=1, metavar="N", help="batches of which one has a random sample (default: %(default)s)")
    args = parser.parse_args()
    rows: list[Row] = []
    app: Application | None = None
    for names, kind, seed in mutants(args.count):
        if app is None or app.name != " on ".join(names):
            app = Application(*names)
        rows.append(judged(app, kind, seed, args.rate))
        print(*rows[-1].values(), sep=" | ", flush=True)
    print(summary_of(rows, args.rate))
    finish("engine_mutants", [summary_of(rows, args.rate), *rows], args.json)


if __name__ == "__main__":
    main()
