"""Counters that two published cost models print for mappings: equal, but for named differences."""

from __future__ import annotations

import re
from typing import Any

import pytest
from published import batch_of, clusters_of, problem_of, schedule_of_row, vectors

from rewrite_compiler.fit.mappers.opinion import notes
from rewrite_compiler.fit.mapping.engine import Engine, Reading
from rewrite_compiler.fit.mapping.schedule import batch_of as columns_of
from rewrite_compiler.fit.mapping.schedule import bypasses_of, schedule_from, violations
from rewrite_compiler.fit.mapping.texts.directives import dataflow_from
from rewrite_compiler.fit.mapping.texts.timeloop import timeloop_schedule, timeloop_text
from rewrite_compiler.fit.models.published import MODELS

pytestmark = pytest.mark.shared
COUNTERS = {"tile": "tile", "instances": "inst", "reads": "reads", "fills": "fills", "updates": "updates"}
CAPACITY = re.compile(r"ERROR: couldn't map level (\w+): mapped tile size (\d+) exceeds")


def has_split_halo(row: dict[str, Any]) -> bool:
    """Whether a window and its axis are both cut at more than one place, where Timeloop does not count set differences."""
    split = {d: sum(m["f"][k] > 1 for m in row["mapping"].values()) for k, d in enumerate(row["dims"])}
    return any(split.get(a, 0) >= 1 and split.get(b, 0) >= 1 and split[a] + split[b] > 2 for a, b in (("P", "R"), ("Q", "S")))


def test_every_counter_of_timeloop() -> None:
    """Weights and outputs everywhere; inputs at stride 1 without a split halo. Tiles everywhere: a strided one takes its span."""
    compared = 0
    for row in vectors("timeloop_v2.json")["valid"]:
        engine = Engine(batch_of(row), spans=True)
        assert int(engine.batch.steps[0]) == row["out"]["cycles"]
        for level, name in enumerate(("L1", "L2", "DRAM")):
            for tensor, printed in row["out"]["levels"][name].items():
                is_whole = tensor != "Inputs" or (row["stride"] == 1 and not has_split_halo(row))
                columns = engine.counts(tensor, level).columns()
                for counter, key in COUNTERS.items():
                    if is_whole or counter in ("tile", "instances", "updates"):
                        assert int(columns[counter][0]) == printed[key], (row["name"], name, tensor, counter)
                        compared += 1
    assert compared > 8_500


def test_most_inputs_with_a_split_halo_agree_too() -> None:
    equal = different = 0
    for row in vectors("timeloop_v2.json")["valid"]:
        if row["kind"] == "conv" and row["stride"] == 1:
            engine = Engine(batch_of(row), spans=True)
            for level, name in enumerate(("L1", "L2", "DRAM")):
                counts = engine.counts("Inputs", level)
                printed = row["out"]["levels"][name]["Inputs"]
                agrees = (int(counts.reads[0]), int(counts.fills[0])) == (printed["reads"], printed["fills"])
                equal, different = equal + agrees, different + (not agrees)
    assert different < equal / 10


def test_every_difference_from_timeloop_is_named() -> None:
    """Where a counter is not the one that Timeloop prints, a note says of which tensor and why; without a note all are equal."""
    unlike = 0
    for row in vectors("timeloop_v2.json")["valid"]:
        engine = Engine(batch_of(row), spans=True)
        tensors = set()
        for level, name in enumerate(("L1", "L2", "DRAM")):
            for tensor, printed in row["out"]["levels"][name].items():
                columns = engine.counts(tensor, level).columns()
                tensors |= {tensor for counter, key in COUNTERS.items() if int(columns[counter][0]) != printed[key]}
        sentences = notes(problem_of(row), schedule_of_row(row))
        assert tensors <= ({"Inputs"} if sentences else set()), row["name"]
        assert row["kind"] == "conv" or not sentences
        unlike += bool(tensors)
    assert unlike > 10


def test_every_rejection_of_timeloop() -> None:
    """A capacity with its level and size, too many parts by rule 2; every mapping that Timeloop takes is legal."""
    capacities = 0
    for row in vectors("timeloop_v2.json")["rejected"]:
        broken = violations(problem_of(row), clusters_of(row), schedule_of_row(row), spans=True)
        capacity = CAPACITY.match(row["invalid"])
        if capacity is None:
            assert {v.rule for v in broken} == {2}
            continue
        capacities += 1
        assert (capacity[1], int(capacity[2])) in {(v.cluster, v.need) for v in broken if v.rule == 3}
    assert capacities > 40
    for row in vectors("timeloop_v2.json")["valid"]:
        assert not violations(problem_of(row), clusters_of(row), schedule_of_row(row), spans=True)


def test_energies_of_timeloop_from_its_table() -> None:
    for row in vectors("timeloop_v2.json")["valid"]:
        if row["kind"] == "gemm" and row["arch"] == "edge":
            cost = MODELS["timeloop"].cost(problem_of(row), clusters_of(row), schedule_of_row(row))
            assert cost.energy_fj == pytest.approx(1000 * row["out"]["energy_pJ"], rel=1e-9)


def test_mappings_go_to_timeloop_and_json_and_back() -> None:
    for row in vectors("timeloop_v2.json")["valid"]:
        problem, clusters, schedule = problem_of(row), clusters_of(row), schedule_of_row(row)
        assert timeloop_schedule(timeloop_text(schedule, problem, clusters), problem, clusters) == schedule
        assert schedule_from(schedule.document(), problem, clusters) == schedule


def test_movement_counters_of_maestro() -> None:
    """Exact, but for filters of `nlr` where units exceed the channels: MAESTRO takes one filter as still there at each wrap."""
    named, compared = 0, 0
    for row in vectors("maestro.json")["rows"]:
        if row["out"] is None or row["type"] == "DSCONV":
            continue
        flow = dataflow_from(row["text"], row["dims"], row["pes"], row["stride"])
        assert not violations(flow.problem, flow.clusters, flow.schedule)
        batch = columns_of(flow.problem, flow.clusters, [flow.schedule])
        engine = Engine(batch, Reading.DATA, bypasses=bypasses_of(flow.clusters, flow.schedule, flow.problem))
        for tensor in ("input", "filter"):
            counts = engine.counts(tensor, 2)
            assert int(counts.fills[0]) == int(row["out"][f"{tensor} l2 write"])
            if row["dataflow"] == "nlr" and tensor == "filter" and row["pes"] > row["dims"]["C"]:
                named += int(counts.reads[0]) != int(row["out"]["filter l2 read"])
                continue
            for counter in ("l2 read", "l1 write"):
                assert int(counts.reads[0]) == int(row["out"][f"{tensor} {counter}"]), (row["layer"], tensor)
                compared += 1
        assert int(engine.counts("output", 2).updates[0]) == int(row["out"]["output l2 write"])
        assert int(engine.counts("output", 3).updates[0]) == int(row["out"]["output l2 read"])
    assert compared > 40
    assert named == 2
