"""Rows of the two published models, as problems, batches and dataflows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from shared import SHARED

from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters
from rewrite_compiler.fit.mapping.columns import Batch
from rewrite_compiler.fit.mapping.schedule import Schedule, schedule_of
from rewrite_compiler.fit.problems.problem import Problem

LEVELS = ("L1_temporal", "L2_temporal", "DRAM_temporal")


@cache
def vectors(name: str) -> dict[str, Any]:
    assert SHARED is not None
    return dict(json.loads((SHARED / "golden" / "mapping" / name).read_text("utf-8")))


def problem_of(row: Mapping[str, Any]) -> Problem:
    sizes, s = dict(zip(row["dims"], row["sizes"], strict=True)), row["stride"]
    if row["kind"] == "gemm":
        return Problem(sizes, {"A": ({"M": 1}, {"K": 1}), "B": ({"K": 1}, {"N": 1}), "Z": ({"M": 1}, {"N": 1})}, "Z")
    weights = ({"K": 1}, {"C": 1}, {"R": 1}, {"S": 1})
    inputs = ({"N": 1}, {"C": 1}, {"P": s, "R": 1}, {"Q": s, "S": 1})
    return Problem(sizes, {"Weights": weights, "Inputs": inputs, "Outputs": ({"N": 1}, {"K": 1}, {"P": 1}, {"Q": 1})}, "Outputs")


def batch_of(row: Mapping[str, Any]) -> Batch:
    mapping, ones = row["mapping"], [1] * len(row["dims"])
    temporal = [mapping[level]["f"] for level in LEVELS]
    order = [[row["dims"].index(d) for d in mapping[level]["order_inner_first"]] for level in LEVELS]
    spatial = [ones, mapping["L2_spatial"]["f"], ones]
    columns = [np.array(x, np.int64)[:, :, None] for x in (temporal, spatial)]
    return Batch(problem_of(row), columns[0], columns[1], np.array(order, np.intp)[:, :, None])


def clusters_of(row: Mapping[str, Any]) -> Clusters:
    arch = vectors("timeloop_v2.json")["archs"][row["arch"]]
    levels = (Cluster("DRAM"), Cluster("L2", arch["l2"], arch["pes"], "X"), Cluster("L1", arch["l1"]))
    energies = {"DRAM": 100_000, "L2": 3_000 if row["arch"] == "edge" else 20_588, "L1": 500}
    return Clusters(row["arch"], levels, 10**9, energies, {"mac2": 250}, "printed by Timeloop")


def schedule_of_row(row: Mapping[str, Any]) -> Schedule:
    return schedule_of(batch_of(row), clusters_of(row), 0)
