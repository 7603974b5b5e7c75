"""The host's table: measured here it has the figures of the shipped one, decides, and is written into the plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command import flexmatch

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.fit.host import SHIPPED, HostTable, host_document, host_picoseconds, table_from
from rewrite_compiler.fit.host_measurement import measured_table
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ops import OPS

SHAPES = {"image": (1, 1, 8, 8)}
X = TensorType((4, 8), "float32")


@pytest.fixture(scope="module")
def here() -> HostTable:
    return measured_table()


def test_a_measured_table_has_every_figure(here: HostTable) -> None:
    assert (here.mac.keys(), here.element.keys()) == (SHIPPED.mac.keys(), SHIPPED.element.keys())
    assert here.call > max(here.mac.values())
    assert here.sha256 != SHIPPED.sha256
    assert table_from(json.loads(json.dumps(host_document(here)))) == here
    assert table_from(host_document(SHIPPED)) is SHIPPED


@pytest.mark.parametrize(("op", "like"), [("relu", "relu"), ("log_softmax", "log_softmax"), ("neg", "relu"), ("transpose", "transpose")])
def test_an_operator_costs_what_its_table_says(op: str, like: str) -> None:
    table = replace(SHIPPED, call=0, element={**SHIPPED.element, like: 1_000_000})
    assert host_picoseconds(OPS[op], [X], [X], {}, table) == 32 * 1_000_000


def test_a_slower_host_offloads_more() -> None:
    slow = HostTable("slow", 10**12, SHIPPED.mac, SHIPPED.element)
    model = find_application("digits_mlp").model
    fast, chosen = (compile_model(model, ["vta"], Options(shapes=SHAPES, objective="cycles", host=t)) for t in (SHIPPED, slow))
    assert chosen.extraction["cost"]["host_operators"] < fast.extraction["cost"]["host_operators"]
    assert all(o.host_picoseconds >= 10**12 for o in chosen.offloads)


def test_the_command_line_measures_and_the_plan_keeps_it(tmp_path: Path) -> None:
    stem = tmp_path / "plan"
    model = str(find_application("digits_mlp").model)
    given = ("--shape", "image=1,1,8,8", "--accel", "vta", "--host-costs", "measured", "--objective", "cycles")
    answer = flexmatch("compile", model, *given, "-o", str(stem))
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(stem.with_suffix(".json").read_text("utf-8"))
    kept = document["settings"]["host_costs"]
    assert kept["source"] == "measured"
    assert kept["picoseconds"]["call"] > 0
    again = flexmatch("show", str(stem.with_suffix(".json")), "--json", "-")
    assert json.loads(again.out)["settings"]["host_costs"] == kept
    assert json.loads(again.out)["extraction"]["cost"] == document["extraction"]["cost"]


def test_other_host_costs_do_not_exist() -> None:
    answer = flexmatch("compile", str(find_application("digits_mlp").model), "--accel", "vta", "--host-costs", "guessed")
    assert answer.code == 2
    assert 'Host costs must be shipped or measured, not "guessed"' in answer.err
