"""Is every extraction the optimum? Random e-graphs of up to 24 e-nodes against trying every choice.

Three ways must agree with it: extraction as it is used, elimination of everything at once where its tables stay small, and the integer
program alone. The script ends with 1 at the first difference.
"""

from __future__ import annotations

import importlib
import random
import sys
from time import process_time

from record import ROOT, Row, finish, options

from rewrite_compiler.egraph.extraction.bucket_elimination import cheapest_by_elimination
from rewrite_compiler.egraph.extraction.extract import extract
from rewrite_compiler.egraph.extraction.prune import candidates, pruned
from rewrite_compiler.egraph.graph.graph import EGraph
from rewrite_compiler.errors import BudgetError

sys.path.insert(0, str(ROOT / "tests" / "egraph"))
from small_graphs import cheapest, cost_of, random_graph, total  # noqa: E402

EXTRACT = importlib.import_module("rewrite_compiler.egraph.extraction.extract")
LEVELS = 3
EVERY = 10  # of the e-graphs also go to the integer program


def draw(r: random.Random) -> int:
    """Return a cost: often nothing, now and then a large one."""
    return r.choice((0, 0, 1, 2, 5, r.randrange(10**6)))


def used(graph: EGraph, roots: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the cost of the extraction, None where there is none; AssertionError when it claims no proof."""
    try:
        extraction = extract(graph, roots, cost_of(graph))
    except BudgetError:
        return None
    assert extraction.status == "optimal", extraction.status
    return extraction.cost


def at_once(graph: EGraph, roots: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the cost that elimination finds without splitting the problem, None where it gives no answer."""
    options = pruned(candidates(graph, cost_of(graph)), roots)
    choice = cheapest_by_elimination(options, roots, 0) if all(r in options for r in roots) else None
    return None if choice is None else total(graph, {c: o.node for c, o in choice.items()}, roots, LEVELS)


def solver_alone(graph: EGraph, roots: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the cost of the extraction when the integer program decides everything."""
    EXTRACT.eliminated = lambda *_: None
    try:
        return used(graph, roots)
    finally:
        EXTRACT.eliminated = cheapest_by_elimination


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=10_000).parse_args()
    started, buildable, eliminations, solved, differences = process_time(), 0, 0, 0, []
    for seed in range(args.runs):
        graph, roots = random_graph(seed, LEVELS, draw)
        best = cheapest(graph, roots, LEVELS)
        buildable += best is not None
        answers = [used(graph, roots)]
        if (undivided := at_once(graph, roots)) is not None:
            eliminations += 1
            answers.append(undivided)
        if seed % EVERY == 0:
            solved += 1
            answers.append(solver_alone(graph, roots))
        if any(a != best for a in answers):
            differences.append(seed)
    row: Row = {"name": "random e-graphs", "graphs": args.runs, "buildable": buildable, "eliminations": eliminations,
                "integer_programs": solved, "differences": differences, "cpu_seconds": process_time() - started}  # fmt: skip
    print(f"{args.runs} e-graphs, {buildable} with a program, {eliminations} eliminated at once, {solved} by the solver alone")
    print(f"{len(differences)} differ from trying every choice {differences[:5] or ''}")
    finish("extraction", [row], args.json)
    raise SystemExit(int(bool(differences)))


if __name__ == "__main__":
    main()
