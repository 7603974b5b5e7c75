"""flexmatch map: the best way to run a layer on memories and an array of units, and who says so."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UsageError
from ...intake import MAX_DOCUMENT_BYTES, FileBound, MalformedText, parse_json, read_bytes
from ..files import page_file, write_atomically
from ..options import check_options_apply, emit_json, one_of, parse_arguments, parser, whole_number
from ..output import print_lines, print_unwrapped

if TYPE_CHECKING:
    from ...fit.mapping.clusters import Clusters
    from ...fit.mapping.space import Space
    from ...fit.problems.problem import Problem

POINTS, FEWEST_POINTS = 1_500, 100  # on a page, of a layer on a page of several
SCHEMA = "flexmatch.map/1"
OPTIMAL = "no mapping costs less"
SEARCH, OVER, ALGORITHMS = "a search", "--over", "--algorithms"
# options that not every way of asking uses
SUBJECTS = {
    **dict.fromkeys(("mapper", "budget", "seed"), (SEARCH, OVER, ALGORITHMS)), "constraints": (SEARCH, OVER, ALGORITHMS, "--space-only"),
    **dict.fromkeys(("free_layout", "algorithms"), (ALGORITHMS,)), "front": (SEARCH,),
    "objective": (SEARCH, OVER, ALGORITHMS, "--mapping"), **dict.fromkeys(("form", "mapping", "why"), (SEARCH, "--mapping")),
    "over": (SEARCH, OVER), "remainders": (SEARCH, "--mapping"),
}  # fmt: skip
FORMS = ("loops", "union", "timeloop", "maestro", "codelet")
REST_FORMS = ("loops", "union")  # that can say that a tile leaves a rest
BOUND = FileBound("a mapping, problem or constraints", MAX_DOCUMENT_BYTES, "leave out what is not read, such as front and points")


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch map` and return its exit code."""
    args = _arguments(arguments)
    from ...fit.mapping.architectures import find_clusters

    clusters = find_clusters(args.arch)
    layers = _layers(args.subject)
    if args.space_only:
        return _space(args, layers, clusters)
    if args.over is not None:
        return _over(args, layers, clusters)
    if args.algorithms:
        return _algorithms(args, layers, clusters)
    _check_forms(args, layers, clusters)
    points = 0 if args.front is None else max(FEWEST_POINTS, POINTS // len(layers))
    documents = _answers(args, layers, clusters, points)
    if args.why is not None:
        documents = [{**d, "why": _why(args.why, d, problem, clusters)} for d, (_, _, problem) in zip(documents, layers, strict=True)]
    front = _model_front(documents)
    document = {"schema": SCHEMA, "layers": documents, **({} if front is None else {"front": front})}
    emit_json(document, args.json)
    if args.front is not None:
        from ...report.graphics.mapping import front_page

        write_atomically(page_file(args.front, front_page(documents)))
    if args.form != "loops":
        print_unwrapped(args, _text(args.form, documents[0], layers[0][2], clusters))
    else:
        print_lines(args, one_layer(documents[0], args.model) if len(documents) == 1 else every_layer(documents, args.model, front))
    return 0


def _model_front(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the front of several layers together; None of one, and without energies."""
    if len(documents) == 1 or not all(d.get("front") for d in documents):
        return None
    from ...fit.mappers.model_front import model_front

    costs = ((d["repeats"], [(p["cycles"], p["energy_fj"]) for p in d["front"]]) for d in documents)
    return model_front(list(costs)).document()


def _why(text: str, document: Mapping[str, Any], problem: Problem, clusters: Clusters) -> dict[str, Any]:
    """Return which loops bring a tensor to a memory.

    Raises:
        UsageError: the text is not LEVEL,TENSOR (F203).
    """
    from ...fit.mappers.cause import cause_document
    from ...fit.mapping.schedule import schedule_from

    level, separator, tensor = text.partition(",")
    if not separator:
        raise UsageError("F203", f'--why is LEVEL,TENSOR, not "{text}"', help=f"as in {clusters.names[-1]},{next(iter(problem.spaces))}")
    return cause_document(problem, clusters, schedule_from(document["mapping"], problem, clusters), document["cost"], (level, tensor))


def _over(args: argparse.Namespace, layers: Sequence[tuple[str, int, Problem]], clusters: Clusters) -> int:
    """Map the layers at every value of a parameter of the architecture.

    Raises:
        UsageError: two models are to price them (F203).
    """
    from .map_over import over_document, over_lines

    if args.model == "all":
        raise UsageError("F203", "--over compares architectures by one model, not by all", help="--model timeloop, or maestro")
    document = over_document(args.over, clusters, args.objective, lambda variant: _answers(args, layers, variant, 0))
    emit_json(document, args.json)
    print_lines(args, over_lines(document, _joules))
    return 0


def _algorithms(args: argparse.Namespace, layers: Sequence[tuple[str, int, Problem]], clusters: Clusters) -> int:
    """Map every way to compute the layers.

    Raises:
        UsageError: two models are to price them (F203).
    """
    from .map_algorithms import algorithms_document, algorithms_lines

    if args.model == "all":
        raise UsageError(
            "F203", "--algorithms compares ways to compute a layer by one model, not by all", help="--model timeloop, or maestro"
        )
    document = algorithms_document(args, layers, clusters, None if args.constraints is None else _json(args.constraints))
    emit_json(document, args.json)
    print_lines(args, algorithms_lines(document, _joules))
    return 0


def _answers(
    args: argparse.Namespace, layers: Sequence[tuple[str, int, Problem]], clusters: Clusters, points: int
) -> list[dict[str, Any]]:  # fmt: skip
    return [{"name": name, "repeats": repeats, **_answer(args, problem, clusters, points)} for name, repeats, problem in layers]


def _check_forms(args: argparse.Namespace, layers: Sequence[tuple[str, int, Problem]], clusters: Clusters) -> None:
    """Check that every layer can be shown in the form that is asked for.

    Raises:
        UsageError: a text form, or a mapping, is of one layer, and there are more (F203).
        InputError: a front needs energies, and the architecture has none of an operation (F233).
    """
    option = args.given.get("mapping") or (args.given.get("form") if args.form != "loops" else None)
    if option and len(layers) > 1:
        raise UsageError(
            "F203", f"{option} is for one layer, and {args.subject} has {len(layers)}", help=f"name one: {args.subject}:{layers[0][0]}"
        )
    if args.remainders:
        _check_rests(args)
    missing = next(filter(None, (clusters.missing_energy(problem) for _, _, problem in layers)), None)
    if args.front is not None and missing is not None:
        raise InputError("F233", f"--front shows cycles against {missing}", help="give the architecture energies, or leave --front out")


def _check_rests(args: argparse.Namespace) -> None:
    """Check that what is asked for is said of tiles that leave rests.

    Raises:
        UsageError: a form, a page or a cause is not (F203).
    """
    options = {"front": args.front is not None, "form": args.form not in REST_FORMS, "why": args.why is not None}
    option = next((name for name, is_given in options.items() if is_given), None)
    if option is not None:
        text = f"{args.given.get(option, option)} is of tiles without rests"
        raise UsageError("F203", text, help=f"leave it, or --remainders, out; rests have --as {' or '.join(REST_FORMS)}")


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    verb_parser = parser(
        "map", "Find the best mapping of a layer on an architecture: tiles, loop orders, parallel dimensions, and what it costs."
    )
    verb_parser.add_argument(
        "subject", metavar="LAYER|MODEL[:NODE]|PROBLEM.json", help="gemm:m=512,n=64,k=1024, conv:…, einsum:adec,ebd->abc:16"
    )
    verb_parser.add_argument("--arch", required=True, metavar="NAME|FILE", help="edge, cloud, an accelerator, or a .json or .toml file")
    mappers = ("anytime", "exhaustive", "random", "decoupled", "genetic", "heuristic")
    verb_parser.add_argument(
        "--mapper", type=one_of(*mappers), default="anytime", metavar="NAME", help=f"{', '.join(mappers)} (default: anytime)"
    )
    verb_parser.add_argument(
        "--model", type=one_of("timeloop", "maestro", "all"), default="timeloop", metavar="NAME",
        help="who prices: timeloop, maestro, or all for both opinions and why they differ (default: timeloop)",
    )  # fmt: skip
    goals = ("edp", "energy", "cycles", "bytes")
    verb_parser.add_argument("--objective", type=one_of(*goals), default="edp", metavar="NAME", help=f"{', '.join(goals)} (default: edp)")
    verb_parser.add_argument("--constraints", metavar="FILE", help="tiles, orders, parallel dimensions, … as JSON")
    verb_parser.add_argument("--mapping", metavar="FILE", help="price this mapping: JSON as --json writes it, or a text as --as prints it")
    verb_parser.add_argument("--why", metavar="LEVEL,TENSOR", help="say which loops bring a tensor to a memory, and which bring it again")
    verb_parser.add_argument("--budget", type=whole_number(1), default=20_000, metavar="N", help="evaluations (default: 20000)")
    verb_parser.add_argument("--seed", type=whole_number(0), default=0, metavar="N", help="of what mappers draw (default: 0)")
    verb_parser.add_argument(
        "--over",
        metavar="NAME=VALUE,…",
        help="search at every value of shape (rows x columns), LEVEL.capacity, LEVEL.children or LEVEL.width",
    )
    verb_parser.add_argument(
        "--algorithms", action="store_true", help="compare the layer as it is with the products of matrices that it becomes"
    )
    verb_parser.add_argument("--free-layout", action="store_true", help="let what moves layouts cost nothing")
    verb_parser.add_argument("--remainders", action="store_true", help="let the last tile along a dimension be smaller")
    verb_parser.add_argument("--space-only", action="store_true", help="count the mappings, and leave")
    verb_parser.add_argument(
        "--as", dest="form", type=one_of(*FORMS), default="loops", metavar="FORM", help=f"{', '.join(FORMS)} (default: loops)"
    )
    verb_parser.add_output("--front", metavar="FILE.html", help="write latency and energy of the mappings as a page")
    args = parse_arguments(verb_parser, arguments)
    check_options_apply(
        args, SUBJECTS, next((way for way in ("--space-only", "--mapping", OVER, ALGORITHMS) if _dest(way) in args.given), SEARCH)
    )
    return args


def _dest(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _layers(subject: str) -> list[tuple[str, int, Problem]]:
    """Return names, repetitions and problems: one of a text or a JSON file, the distinct ones of a model."""
    from ...fit.problems.layers import is_layer, layer_problem
    from ...fit.problems.problem import problem_from

    if is_layer(subject):
        return [(subject, 1, layer_problem(subject))]
    if subject.endswith(".json"):
        with _placed(subject):
            return [(subject, 1, problem_from(_json(subject)))]
    from ...fit.problems.model_layers import model_layers

    path, _, node = subject.partition(":")
    check_subject(subject)
    return model_layers(Path(path), node)


@contextmanager
def _placed(path: str) -> Iterator[None]:
    """Give refusals of what a file says its name."""
    try:
        yield
    except InputError as error:
        raise error.at(path) from None


def _json(path: str) -> Any:
    try:
        return parse_json(read_bytes(Path(path), BOUND))
    except MalformedText as error:
        raise InputError("F230", f"The file is not JSON: {error}", place=path) from None


def _answer(args: argparse.Namespace, problem: Problem, clusters: Clusters, points: int) -> dict[str, Any]:
    from ...fit.api import map as mapping_of

    model = "timeloop" if args.model == "all" else args.model
    if args.mapping is not None:
        with _placed(args.mapping):
            levels = _mapping(args.mapping, problem, clusters)
            return mapping_of(problem, clusters, model=model, objective=args.objective, mapping=levels, remainders=args.remainders)
    constraints = None if args.constraints is None else _constraints(args.constraints, problem, clusters)
    return mapping_of(
        problem, clusters, model=model, objective=args.objective, mapper=args.mapper, budget=args.budget, seed=args.seed,
        constraints=constraints, points=points, remainders=args.remainders,
    )  # fmt: skip


def _constraints(path: str, problem: Problem, clusters: Clusters) -> Any:
    from ...fit.mapping.constraints import constraints_from

    document = _json(path)
    with _placed(path):
        constraints_from(document, problem, clusters)
    return document


def _mapping(path: str, problem: Problem, clusters: Clusters) -> Sequence[Any]:
    """Return the mapping of a file: a list of levels, a document of this verb, or a text in any form that it prints."""
    if not path.endswith(".json"):
        from ...fit.mapping.texts.forms import schedule_of_text

        return schedule_of_text(read_bytes(Path(path), BOUND).decode("utf-8", "replace"), problem, clusters).document()
    document = _json(path)
    if isinstance(document, Mapping) and document.get("schema") == SCHEMA:
        layers = document.get("layers")
        if not isinstance(layers, list) or len(layers) != 1 or not isinstance(layers[0], Mapping):
            raise InputError("F230", "The document must hold one layer with its mapping", place=path)
        document = layers[0].get("mapping")
    return document if isinstance(document, list) else [document]


def _space(args: argparse.Namespace, layers: Sequence[tuple[str, int, Problem]], clusters: Clusters) -> int:
    from ...fit.mapping.constraints import constraints_from
    from ...fit.mapping.space import FREE, Space
    from ...fit.models.published import model_named

    reading = model_named("timeloop" if args.model == "all" else args.model).reading
    rows = []
    for name, repeats, problem in layers:
        constraints = FREE
        if args.constraints is not None:
            constraints = constraints_from(_constraints(args.constraints, problem, clusters), problem, clusters)
        rows.append((name, repeats, Space(problem, clusters, constraints, reading)))
    spaces: list[dict[str, Any]] = [
        {"name": name, "repeats": repeats, "tilings": s.legal_tilings, "mappings": s.count} for name, repeats, s in rows
    ]
    emit_json({"schema": "flexmatch.space/1", "architecture": clusters.name, "layers": spaces}, args.json)
    print_lines(args, [_space_line(s["name"], space) for s, (_, _, space) in zip(spaces, rows, strict=True)])
    return 0


def _space_line(name: str, space: Space) -> str:
    return f"{name}  {space.count:,} mappings: {space.legal_tilings:,} tilings within the array, with their orders; capacities not counted"


def _text(form: str, document: Mapping[str, Any], problem: Problem, clusters: Clusters) -> str:
    from ...fit.mapping.schedule import schedule_from
    from ...fit.mapping.texts.forms import FORMS as PRINTERS

    return PRINTERS[form].text(schedule_from(document["mapping"], problem, clusters), problem, clusters).rstrip()


def one_layer(document: Mapping[str, Any], model: str) -> list[str]:
    """Return one mapping as text: loops, counters by level and tensor, cost, and the other opinion."""
    from ...report.tables import grid

    cost = document["cost"]
    rows = [
        (level, tensor, *(f"{c[name]:,}" for name in ("tile", "instances", "reads", "fills", "updates")))
        for level, tensors in cost["counters"].items()
        for tensor, c in tensors.items()
    ]
    heads = ("level", "tensor", "tile", "instances", "reads", "fills", "updates")
    lines = [*document["loops"], "", *grid(heads, rows, heads[2:], 0), "", *_cost_lines(document)]
    if model == "all":
        lines += ["", *document["notes"], *_differences(document)]
    elif document["leaves_rests"]:
        lines += ["", *document["notes"]]
    if "why" in document:
        from ...fit.mappers.cause import cause_lines

        lines += ["", *cause_lines(document["why"])]
    return lines


def _cost_lines(document: Mapping[str, Any]) -> list[str]:
    cost = document["cost"]
    lines = [f"{cost['model']:<10} {cost['cycles']:,} cycles, {_joules(cost['energy_fj'])}; {100 * cost['utilisation']:.1f}% of the units"]
    for o in document["opinions"]:
        lines.append(o["why_not"] if "why_not" in o else f"{o['model']:<10} {o['cycles']:,} cycles, {_joules(o['energy_fj'])}")
    lines.append(f"limits     {', '.join('{part} {cycles:,}'.format(**limit) for limit in document['limits'])} cycles")
    if cost["energy_fj"] is not None:
        lines.append(f"energies   {cost['energy_source']}")
    if "evaluated" in document:
        lines.append(f"search     {document['evaluated']:,} evaluations, {document['legal']:,} legal ({document['stop']})")
        lines.append(f"bound      {_bound_text(document)}")
    return lines


def _bound_text(document: Mapping[str, Any]) -> str:
    """Return what a better mapping could save at most, as the lower bound says; that it can be had is not known."""
    if document.get("remainders"):
        return "none: what no mapping goes below is known of tiles without rests"
    if document["gap"] is None:
        return "none: there are too many splits over the units to look at"
    return f"no mapping saves more than {100 * document['gap']:.1f}% of this {document['objective']}" if document["gap"] else OPTIMAL


def _joules(femtojoules: int | None) -> str:
    return "no energy" if femtojoules is None else f"{femtojoules / 1e9:,.3f} µJ"


def _differences(document: Mapping[str, Any]) -> list[str]:
    refusals = [o["why_not"] for o in document["opinions"] if "why_not" in o]
    if refusals:
        return ["there is no second opinion to compare with"]
    if not document["differences"]:
        return ["both models count the same"]
    lines = []
    for d in document["differences"]:
        values = ", ".join(f"{name} {n:,}" for name, n in d["values"].items())
        lines.append(f"{d['level']} {d['tensor']} {d['counter']}: {values}; {d['because']}")
    return lines


def every_layer(documents: Sequence[Mapping[str, Any]], model: str, front: Mapping[str, Any] | None = None) -> list[str]:
    """Return the layers of a model as a table: `at most saved` is the share of the objective that the bound leaves open."""
    from ...report.tables import grid

    others = [o["model"] for o in documents[0]["opinions"]] if model == "all" else []
    heads = ("layer", "times", "cycles", *(f"by {name}" for name in others), "energy", "units", "at most saved")
    rows = []
    for d in documents:
        cost = d["cost"]
        gap = "–" if d.get("gap") is None else f"{100 * d['gap']:.1f}%"
        opinions = [f"{o['cycles']:,}" if "cycles" in o else "not priced" for o in d["opinions"]] if others else []
        units = f"{100 * cost['utilisation']:.0f}%"
        rows.append((d["name"], f"{d['repeats']}", f"{cost['cycles']:,}", *opinions, _joules(cost["energy_fj"]), units, gap))
    return [*grid(heads, rows, heads[1:], 0), *([] if front is None else ["", *_front_lines(documents, front)])]


def _front_lines(documents: Sequence[Mapping[str, Any]], front: Mapping[str, Any]) -> list[str]:
    """Return the ends of a model's front and its least product beside the sum of the layers' own mappings."""
    from ...report.tables import grid

    points = front["points"]
    totals = {
        "cycles": sum(d["repeats"] * d["cost"]["cycles"] for d in documents),
        "energy_fj": sum(d["repeats"] * d["cost"]["energy_fj"] for d in documents),
    }
    least = min(points, key=lambda p: p["cycles"] * p["energy_fj"])
    kinds = {"each layer's own": totals, "least cycles": points[0], "least edp": least, "least energy": points[-1]}
    product = least["cycles"] * least["energy_fj"]
    rows = [
        (name, f"{p['cycles']:,}", _joules(p["energy_fj"]), f"{p['cycles'] * p['energy_fj'] / product:.4g}") for name, p in kinds.items()
    ]
    heads = ("whole model", "cycles", "energy", "edp / least")
    count = f"{len(points):,} sums of the layers' mappings that no other is below" + ("" if front["is_complete"] else ", thinned")
    return [*grid(heads, rows, heads[1:], 0), count]


def check_subject(subject: str) -> None:
    """Check that a subject is a layer, a JSON file or a model.

    Raises:
        UsageError: it is none of them (F203).
    """
    if ":" in subject and not subject.partition(":")[0].endswith((".onnx", ".json")):
        raise UsageError("F203", f'"{subject}" is no layer', help="layers: gemm:m=…,n=…,k=…, conv:k=…,c=…,p=…,q=…, einsum:ab,bc->ac:16")
