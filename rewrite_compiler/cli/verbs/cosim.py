"""flexmatch cosim: the co-simulation of a plan, or of a model with --accel, over data."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AnswerNo, UsageError
from ..files import page_file, write_atomically
from ..options import (
    Parser,
    add_page_option,
    add_sample_options,
    add_steering_options,
    emit_json,
    one_of,
    parse_arguments,
    parser,
    plan_of,
    python_files,
    whole_number,
)
from ..output import is_live, print_lines
from ..watch import add_watch_option, watch

MAX_ATTRIBUTION_SAMPLES = 128

if TYPE_CHECKING:
    from ...compile import Plan
    from ...cosim import Report, Settings
    from ...cosim.metrics.loss_bound import Band


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch cosim` and return its exit code.

    Raises:
        AnswerNo: the metric loses more than --within allows (C105).
        UsageError: the loss of simulators cannot be attributed to numerics (F203).
    """
    verb_parser = parser("cosim", "Run a plan, or a model compiled now, over data: host parts in float32, offloads bit-exactly.")
    verb_parser.add_model("plan", metavar="PLAN|MODEL", help="a file of one, or an application of `flexmatch list`, which brings its data")
    add_steering_options(verb_parser)
    verb_parser.add_data(metavar="FILE", help="samples: .npz, a folder of them, or a .toml that describes them")
    add_calibration_options(verb_parser)
    add_simulation_options(verb_parser)
    verb_parser.add_output(
        "--log", metavar="FILE", help="keep every finished sample there (default: beside --json until the report is written)"
    )
    verb_parser.add_argument("--within", metavar="LOSS", help="answer no (exit 1) when the metric loses more: 1pt, 5%%, 0.02")
    verb_parser.add_argument(
        "--attribute", action="store_true", help="tell which offloads, terms of their numerics and fields of formats the loss comes from"
    )
    add_page_option(verb_parser)
    add_watch_option(verb_parser)
    args = parse_arguments(verb_parser, arguments)
    if args.watch:
        return watch("cosim", arguments, [args.plan, args.data, args.calibrate, *args.rules, *python_files(args)])
    from ...cosim import cosimulate
    from ...cosim.metrics.loss_bound import band_of
    from ...report.terminal import cosim_lines

    band = None if args.within is None else band_of(args.within)
    run_settings = replace(settings(args), **log_of(args), keep_outputs=False, calibration_method=args.calibration_method)
    plan = plan_of(args, Path(args.plan))
    if args.attribute:
        check_numerics_are_what_runs(plan, args)
    report = cosimulate(plan, args.data, calibrate=args.calibrate, settings=run_settings, progress=progress(args))
    if args.attribute:
        report = replace(report, document={**report.document, "attribution": attribution_of(args, report, plan)})
    emit_json(report.document, args.json)
    write_page(args.html, report)
    if run_settings.log is not None and args.log is None:
        run_settings.log.unlink(missing_ok=True)
    print_lines(args, [*cosim_lines(report.document, verbose=args.verbose), *([f"wrote      {args.html}"] if args.html else [])])
    check_loss(report.document, band)
    return 0


def write_page(path: str | None, report: Report) -> None:
    """Write a co-simulation with its plan as one HTML page, if there is a path."""
    if path is not None:
        from ...report.page.html import report_page

        assert report.plan is not None
        write_atomically(page_file(path, report_page(report.plan, report.document)))


def check_numerics_are_what_runs(plan: Plan, args: argparse.Namespace) -> None:
    """Refuse an attribution of what simulators return where the numerics, which it changes, are not proved to be the same.

    Raises:
        UsageError: F203.
    """
    from ...compile.offload.specified import is_certified
    from ...cosim.tier import SIMULATOR, chosen_engine

    if chosen_engine(args.engine, args.tier) != SIMULATOR:
        return
    specified = {o.mapping.name: o for o in plan.offloads if o.mapping.codes is not None}
    others = [name for name, o in specified.items() if not is_certified(o.target, o.mapping.variant)]
    if others:
        sentence = f"--attribute changes numerics: those of {', '.join(others)} are not proved to be what a simulator returns"
        raise UsageError("F203", sentence, help="run without --engine simulator, or correct what flexmatch prove refutes")


def attribution_of(args: argparse.Namespace, report: Report, plan: Plan) -> Mapping[str, Any]:
    """Return the attribution of a co-simulation's loss to offloads, on at most ATTRIBUTED_SAMPLES of its samples."""
    from ...cosim.cosimulate import dataset_for, remaining_samples
    from ...cosim.metrics.metrics import metric_of
    from ...study.diagnosis.attribution import attribute
    from ...study.diagnosis.trials import Trials

    data = remaining_samples(plan, dataset_for(plan, args.data), args.calibrate)
    data = data.evenly(min(MAX_ATTRIBUTION_SAMPLES, args.samples or data.count, data.count))
    assert report.plan is not None
    trials = Trials(report.plan, data, metric_of(args.metric, data.task), batch=args.batch, threads=args.threads or 1, tier=args.tier)
    return attribute(report.plan, trials)


def log_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the setting of the sample log: the file of --log, or one beside the report until that is written."""
    if args.log is not None:
        return {"log": Path(args.log)}
    return {} if args.json in (None, "-") else {"log": Path(f"{args.json}.log")}


def check_loss(document: Mapping[str, Any], band: Band | None) -> None:
    """Refuse a loss beyond a band; the metric's value decides, the sentence gives the interval, too.

    Raises:
        AnswerNo: the metric loses more than the band allows (C105).
    """
    from ...report.figures import interval_text

    if band is None:
        return
    reference, accelerated = (document[side]["value"] for side in ("reference", "accelerated"))
    loss = (accelerated - reference) * (1 if document["lower_is_better"] else -1)
    if not band.holds(loss, reference):
        ends = document["paired"]["interval"]
        interval_note = "" if ends is None else f" (95% interval of the difference {interval_text(ends)})"
        raise AnswerNo("C105", f"{document['metric']} may lose at most {band.text}, not {loss:.4g}{interval_note}")


def add_calibration_options(verb_parser: Parser) -> None:
    """Add the options of calibration: its samples, and how ranges become number formats."""
    verb_parser.add_argument("--calibrate", metavar="FILE", help="samples that fix the number formats (default: the first 32 of --data)")
    add_method_option(verb_parser)


def add_method_option(verb_parser: Parser) -> None:
    """Add the option that chooses the calibration method."""
    verb_parser.add_argument(
        "--calibration-method", default="", metavar="METHOD", help="max (default), percentile, mse, entropy; OFFLOAD.TENSOR=METHOD for one"
    )


def add_simulation_options(verb_parser: Parser) -> None:
    """Add the options of a co-simulation."""
    verb_parser.add_setting(
        "--metric",
        default="",
        metavar="NAME",
        help="top1, top5, f1, perplexity, mse, psnr, cosine, max-relative-error or MODULE:FUNCTION (default: by the data)",
    )
    add_sample_options(verb_parser)
    audit_help = "compute the first sample again by commands on simulators, and one of N batches (default: of 256 samples; 0: none)"
    verb_parser.add_setting("--audit", type=whole_number(0), default=None, metavar="N", help=audit_help)
    tiers = one_of("auto", "native", "arrays", "oracle")
    tier_help = "how simulators compute (default auto: native from three batches or many commands on, else arrays); answers are the same"
    verb_parser.add_setting("--tier", type=tiers, default="auto", metavar="auto|native|arrays|oracle", help=tier_help)
    engines = one_of("auto", "numerics", "simulator")
    engine_help = (
        "what computes offloads: what operations are specified to return (numerics, the default where there are some), or simulators"
    )
    verb_parser.add_setting("--engine", type=engines, default="auto", metavar="auto|numerics|simulator", help=engine_help)
    host_help = "what runs the host parts: onnxruntime (default), or exact: sums in order, the same bits on every machine"
    verb_parser.add_setting(
        "--host", type=one_of("onnxruntime", "exact"), default="onnxruntime", metavar="onnxruntime|exact", is_extended=True, help=host_help
    )
    scheduler_help = "send the work to a dask.distributed scheduler, tcp://HOST:PORT (extra scale)"
    # on the command line only: who answers at the address runs code here
    verb_parser.extended_actions.append(verb_parser.add_argument("--scheduler", default="", metavar="ADDRESS", help=scheduler_help))


def settings(args: argparse.Namespace) -> Settings:
    """Return the settings that the arguments describe."""
    from ...cosim import Settings
    from ...limits import DEFAULT

    seconds = DEFAULT.with_overrides(vars(args).get("limits", [])).host_seconds
    return Settings(
        args.metric, args.samples, args.batch, args.threads, args.tier, args.audit, args.host, scheduler=args.scheduler,
        host_seconds=seconds, engine=args.engine,
    )  # fmt: skip


def progress(args: argparse.Namespace) -> Callable[[int, int], None] | None:
    """Return a callback that shows finished samples, rate and remaining seconds on a live line; None without a terminal."""
    if not is_live(args):
        return None

    started = time.monotonic()
    first: list[int] = []

    def show(count: int, total: int) -> None:
        first.append(count) if not first else None
        seconds = time.monotonic() - started
        rate = (count - first[0]) / seconds if count > first[0] and seconds else 0.0
        remaining_text = f" · {rate:.1f}/s · {(total - count) / rate:.0f} s left" if rate else ""
        text = f"\r\x1b[Kcosim     {count}/{total} samples{remaining_text}"
        print(text, end="" if count < total else "\r\x1b[K", file=sys.stderr, flush=True)

    return show
