"""Reproduction: the commands that make a plan and its co-simulation again, and the hashes they must find."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ..graphics.markup import definitions, folded, lines
from ..terminal import count_text, number

DEPENDENCIES = ("flexmatch", "egglog", "numpy", "onnx", "onnxruntime", "highspy", "llvmlite", "z3-solver")


def reproduction_section(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> str:
    """Return the section of the page with the commands, and the hashes and versions behind the plan."""
    return folded("How to make this again", lines(commands(plan, cosim)) + definitions(_rows(plan)), "again")


def commands(plan: Mapping[str, Any], cosim: Mapping[str, Any] | None) -> list[str]:
    """Return the shell commands: compile, co-simulate, show."""
    model = plan["model"]["path"]
    stem = f"{model.rsplit('/', 1)[-1].rsplit('.', 1)[0]}.{'-'.join(t['name'] for t in plan['targets'])}"
    word_lists = [["flexmatch", model, *_steering(plan), "-o", stem]]
    show_words = ["flexmatch", "show", f"{stem}.json", *_files(plan)]
    if cosim is not None:
        word_lists.append(["flexmatch", "cosim", f"{stem}.json", *_files(plan), *_run(plan, cosim), "--json", "report.json"])
        show_words += ["--cosim", "report.json"]
    return [shlex.join(words) for words in (*word_lists, [*show_words, "--html", "report.html"])]


def _steering(plan: Mapping[str, Any]) -> Iterator[str]:
    settings = plan.get("settings", {})
    yield from _accelerators(plan["targets"])
    for name, shape in settings.get("shapes", {}).items():
        yield from ("--shape", f"{name}={','.join(map(str, shape))}")
    if settings.get("exact"):
        yield "--exact"
    if settings.get("objective", "offloads") != "offloads":
        yield from ("--objective", settings["objective"])
    for key in ("only", "without"):
        if settings.get(key):
            yield from (f"--{key}", ",".join(settings[key]))
    for pin in settings.get("on", ()):
        yield from ("--on", pin)
    yield from _files(plan)
    if plan["calibration"] is not None:
        yield from ("--calibrate", plan["calibration"]["source"])


def _accelerators(targets: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for t in targets:
        parameters = ",".join(f"{k}={v}" for k, v in t["parameters"].items())
        yield from ("--accel", f"{t['name']}:{parameters}" if parameters else t["name"])


def _files(plan: Mapping[str, Any]) -> list[str]:
    settings = plan.get("settings", {})
    return [x for key, flag in (("rules", "--rules"), ("trusted", "--trust-unproved")) for f in settings.get(key, ()) for x in (flag, f)]


def _run(plan: Mapping[str, Any], cosim: Mapping[str, Any]) -> list[str]:
    calibration = cosim.get("calibration")
    calibrate = (
        ["--calibrate", calibration["source"]]
        if plan["calibration"] is None and calibration and calibration["source"] != cosim["data"]["source"]
        else []
    )
    return ["--data", cosim["data"]["source"], *calibrate, "--metric", cosim["metric"], "--samples", str(cosim["samples"])]


def _rows(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    model, cost, calibration = plan["model"], plan["extraction"], plan["calibration"]
    source = "none"
    if calibration is not None:
        source = f"{calibration['source']}, {count_text(calibration['samples'], 'sample')}: {calibration['method']}"
    return [
        ("model", f"{model['path']}, sha256 {model['sha256']}"),
        *((t["name"], f"{''.join(f'{k}={v}, ' for k, v in t['parameters'].items())}sha256 {t['sha256']}") for t in plan["targets"]),
        ("rules", f"sha256 {plan['rules_sha256']}"),
        ("formats", source),
        ("extraction", f"{cost['status']}, gap {number(cost['gap'])}"),
        ("schema", plan["schema"]),
        ("made with", ", ".join(f"{name} {version(name)}" for name in DEPENDENCIES)),
    ]
