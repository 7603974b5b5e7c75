"""flexmatch repair: the smallest change of number formats or parameters that keeps an application's accuracy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import AnswerNo
from ..files import write_atomically
from ..options import add_sample_options, add_steering_options, compile_options, emit_json, one_of, parse_arguments, parser, plan_of
from ..output import document_bytes, print_lines
from .compile import check_plan_paths, plan_paths
from .cosim import add_calibration_options


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch repair` and return its exit code.

    Raises:
        AnswerNo: no change that was tried keeps the loss within the band (C105).
    """
    verb_parser = parser(
        "repair", "Search the smallest change of number formats, or of the accelerator, that keeps an application's accuracy."
    )
    verb_parser.add_model("plan", metavar="PLAN|MODEL", help="a file of one, or an application of `flexmatch list`, which brings its data")
    add_steering_options(verb_parser)
    verb_parser.add_data(metavar="FILE", help="samples; one half is searched on, the other judges")
    verb_parser.add_argument("--within", required=True, metavar="LOSS", help="what the metric may lose: 1pt, 5%%, 0.02")
    add_calibration_options(verb_parser)
    verb_parser.add_setting("--metric", default="", metavar="NAME", help="as for cosim")
    add_sample_options(verb_parser)
    tiers = one_of("auto", "native", "arrays", "oracle")
    verb_parser.add_setting(
        "--tier", type=tiers, default="auto", metavar="auto|native|arrays|oracle", help="as for cosim; the answers are the same"
    )
    verb_parser.add_output("-o", "--output", is_file=False, metavar="STEM", help="write the plan of the repair to STEM.json and STEM.onnx")
    args = parse_arguments(verb_parser, arguments)
    stem = None if args.output is None else Path(args.output)
    if stem is not None:
        check_plan_paths(stem, args)
    from ...compile import plan_files
    from ...cosim.cosimulate import dataset_for, with_formats
    from ...cosim.metrics.loss_bound import band_of
    from ...cosim.metrics.metrics import metric_of
    from ...study.diagnosis.repair import repair

    band = band_of(args.within)
    plan = plan_of(args, Path(args.plan))
    data = dataset_for(plan, args.data)
    metric = metric_of(args.metric, data.task)
    plan, data = with_formats(plan, data, args.calibrate, args.calibration_method)
    data = data.evenly(args.samples) if args.samples else data
    threads = args.threads or os.cpu_count() or 1
    result = repair(plan, data, metric, band, options=compile_options(args), batch=args.batch, threads=threads, tier=args.tier)
    emit_json(result.document, args.json)
    file_names: list[str] = []
    if stem is not None and result.plan is not None:
        path = os.path.relpath(result.plan.model["path"], stem.parent)
        files = plan_files(replace(result.plan, model={**result.plan.model, "path": path}))
        onnx, document = plan_paths(stem)
        write_atomically({onnx: files.onnx, document: document_bytes(files.document)})
        file_names = [str(onnx), str(document)]
    print_lines(args, lines(result.document, file_names, plan.notes))
    if not result.document["holds_already"] and result.plan is None:
        undecided = result.document["undecided"]
        reason = "" if undecided is None else f" and is told from the design as it is by {undecided['samples']} samples held back"
        sentence = f"No change of the plan that was tried keeps the loss of {metric.name} within {band.text}{reason}"
        raise AnswerNo("C105", sentence, place=str(args.plan), help=remedy_in(result.document))
    return 0


def remedy_in(document: Mapping[str, Any]) -> str:
    """Return what to do where no change of the plan holds; nothing where no change of the specification does, either."""
    terms = [p for p in document["specification"] if p["verify"]["within"]]
    if any(p["distinguishable"] for p in terms):
        return "make the change of the specification that is named above, and compile again"
    if terms or document["undecided"] is not None:
        return "give more samples, or a metric that changes with every sample: --metric cosine"
    return ""


def lines(document: Mapping[str, Any], file_names: Sequence[str] = (), notes: Sequence[str] = ()) -> list[str]:
    """Return a repair as text: the culprit, the proposals by their price, and the one that was chosen."""
    from ...report.tables import grid
    from ...report.terminal import number, table
    from ...study.diagnosis.change_text import culprit_text

    metric, before = document["metric"], document["before"]
    samples = document["samples"]
    changes = [
        (p["what"], f"+{p['added_bits']}", number(p["search"]["value"]), _verified(p), _against_now(p))
        for p in document["proposals"]
        if p["search"]["within"] or p["what"] in document["front"]
    ]
    repair_text = "nothing: the loss is within the band already" if document["holds_already"] else _chosen_text(document)
    rows = [
        ("host", f"{metric} {number(document['reference']['search'])} / {number(document['reference']['verify'])}  (searched / held back)"),
        ("now", f"{number(before['search']['value'])} / {number(before['verify']['value'])}{_against_host(before['verify'])}"),
        ("samples", f"{samples['search']} to search on, {samples['verify']} held back · within {document['within']}"),
        ("culprit", culprit_text(document["attribution"])),
        ("repair", repair_text),
        *(("or in", f"the specification: {_with_doubt(p, samples['verify'])}") for p in document["specification"] if p["verify"]["within"]),
        *(("note", text) for text in notes),
        ("wrote", ", ".join(file_names)),
    ]
    return [*table(rows), *grid(("change", "bits", "searched", "held back", "held back against now"), changes, ("bits", "searched"))]


def _chosen_text(document: Mapping[str, Any]) -> str:
    """Return the chosen change; where none is, whether one is within the band that the samples held back cannot tell from the design."""
    undecided = document["undecided"]
    if undecided is None:
        return document["chosen"] or "nothing that was tried"
    why = undecided["method"] if undecided["interval"] is None else f"95 % interval of the difference {_interval(undecided['interval'])}"
    return f"nothing: {undecided['what']} is not distinguishable from now on {undecided['samples']} samples ({why})"


def _with_doubt(proposal: Mapping[str, Any], count: int) -> str:
    return str(proposal["what"]) + ("" if proposal["distinguishable"] else f" (not distinguishable from now on {count} samples)")


def _against_host(figures: Mapping[str, Any]) -> str:
    """Return the interval of the difference from the host on the samples held back; nothing where there is none."""
    from ...report.figures import interval_text

    return "" if figures["interval"] is None else f"  (held back: 95% interval of the difference {interval_text(figures['interval'])})"


def _against_now(proposal: Mapping[str, Any]) -> str:
    """Return the interval of the difference from the design as it is, on the samples held back."""
    from ...report.figures import interval_text

    return "–" if proposal["against_now"] is None else interval_text(proposal["against_now"])


def _interval(ends: Sequence[float]) -> str:
    from ...report.terminal import number

    return f"{number(ends[0])} … {number(ends[1])}"


def _verified(proposal: Mapping[str, Any]) -> str:
    from ...report.terminal import number

    verification = proposal["verify"]
    return "–" if verification is None else f"{number(verification['value'])}{'' if verification['within'] else ' (not within)'}"
