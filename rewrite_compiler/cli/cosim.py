"""flexmatch cosim: a plan, or a model with --accel, over data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .common import accelerators, compile_options, emit_json, parser, say, steering

if TYPE_CHECKING:
    from ..compile import Plan
    from ..cosim import Settings


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("cosim", "Run a plan, or a model compiled now, over data: host parts in float32, offloads bit-exactly.")
    made.add_argument("plan", type=Path, metavar="PLAN|MODEL")
    steering(made)
    made.add_argument("--data", type=Path, required=True, metavar="FILE", help="samples: .npz, a folder of them, or a .toml that describes them")
    made.add_argument("--calibrate", type=Path, metavar="FILE", help="samples that fix the number formats (default: the first 32 of --data)")
    simulation_options(made)
    given = made.parse_args(arguments)
    from ..cosim import cosimulate
    from ..report.terminal import cosim_lines

    report = cosimulate(_plan(given), given.data, calibrate=given.calibrate, settings=settings(given), progress=progress(given))
    emit_json(report.document, given.json)
    say(given, cosim_lines(report.document))
    return 0


def simulation_options(made: argparse.ArgumentParser) -> None:
    """Add the options of a co-simulation."""
    made.add_argument("--metric", default="", metavar="NAME", help="top1, top5, perplexity, mse, psnr, max-relative-error (default: by the data)")
    made.add_argument("--samples", type=int, default=0, metavar="N", help="use N evenly spaced samples")
    made.add_argument("--batch", type=int, default=32, metavar="N", help="samples simulated together (default 32)")
    made.add_argument("--threads", type=int, default=0, metavar="N", help="batches simulated side by side (default: one a core)")
    made.add_argument("--tier", default="arrays", choices=("arrays", "oracle"), help="how simulators compute; the answers are the same")


def settings(given: argparse.Namespace) -> Settings:
    """Return the settings that the arguments describe; UsageError for a number that is not positive."""
    from ..cosim import Settings

    for name in ("samples", "batch", "threads"):
        value = getattr(given, name)
        if value < 0 or (name == "batch" and value < 1):
            raise UsageError("F203", f"--{name} must be positive, not {value}")
    return Settings(given.metric, given.samples, given.batch, given.threads, given.tier)


def _plan(given: argparse.Namespace) -> Plan:
    from ..compile import compile_model, is_plan, read_plan

    if is_plan(given.plan):
        return read_plan(given.plan, accelerators(given))
    return compile_model(given.plan, accelerators(given), compile_options(given))


def progress(given: argparse.Namespace) -> Callable[[int, int], None] | None:
    """Return a live counter for terminals, None otherwise."""
    if given.quiet or not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        print(f"\r\x1b[Kcosim     {done}/{total} samples", end="" if done < total else "\r\x1b[K", file=sys.stderr, flush=True)

    return show
