"""flexmatch cosim: a plan, or a model with --accel, over data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AnswerNo
from .common import Parser, emit_json, one_of, options, parser, plan_of, steering, whole_number
from .output import is_live, say

if TYPE_CHECKING:
    from ..cosim import Settings


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("cosim", "Run a plan, or a model compiled now, over data: host parts in float32, offloads bit-exactly.")
    made.add_argument("plan", metavar="PLAN|MODEL")
    steering(made)
    made.add_argument("--data", required=True, metavar="FILE", help="samples: .npz, a folder of them, or a .toml that describes them")
    made.add_argument("--calibrate", metavar="FILE", help="samples that fix the number formats (default: the first 32 of --data)")
    simulation_options(made)
    given = options(made, arguments, "plan", "data", "calibrate")
    from ..cosim import cosimulate
    from ..report.terminal import cosim_lines

    report = cosimulate(
        plan_of(given, Path(given.plan)), given.data, calibrate=given.calibrate, settings=settings(given), progress=progress(given)
    )
    emit_json(report.document, given.json)
    say(given, cosim_lines(report.document))
    refuse_mismatches(report.document)
    return 0


def refuse_mismatches(document: Mapping[str, Any]) -> None:
    """Raise AnswerNo C104 when an audit found results that the oracle does not give."""
    wrong, audited = (document["simulator"][key] for key in ("audit_mismatches", "audited"))
    if wrong:
        raise AnswerNo("C104", f"{wrong} of {audited} audited results differ from the oracle", help="this is a bug of flexmatch: report it")


def simulation_options(made: Parser) -> None:
    """Add the options of a co-simulation."""
    count = whole_number(1)
    made.setting(
        "--metric", default="", metavar="NAME", help="top1, top5, perplexity, mse, psnr, max-relative-error (default: by the data)"
    )
    made.setting("--samples", type=count, default=0, metavar="N", help="use N evenly spaced samples")
    made.setting("--batch", type=count, default=32, metavar="N", help="samples simulated together (default 32)")
    made.setting("--threads", type=count, default=0, metavar="N", help="batches simulated side by side (default: one a core)")
    made.setting("--audit", type=count, default=0, metavar="N", help="compute N results of each offload again by the oracle")
    tiers = one_of("arrays", "oracle")
    made.setting(
        "--tier", type=tiers, default="arrays", metavar="arrays|oracle", help="how simulators compute; the answers are the same"
    )


def settings(given: argparse.Namespace) -> Settings:
    """Return the settings that the arguments describe."""
    from ..cosim import Settings

    return Settings(given.metric, given.samples, given.batch, given.threads, given.tier, given.audit)


def progress(given: argparse.Namespace) -> Callable[[int, int], None] | None:
    """Return a live counter for terminals, None otherwise."""
    if not is_live(given):
        return None

    def show(done: int, total: int) -> None:
        print(f"\r\x1b[Kcosim     {done}/{total} samples", end="" if done < total else "\r\x1b[K", file=sys.stderr, flush=True)

    return show
