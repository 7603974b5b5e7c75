"""What offloads cost, as the terminal says it: one line a target, each offload when asked; nothing where no cost is known."""

from __future__ import annotations

from typing import Any

from rewrite_compiler.report.terminal import application_texts, cost_texts, offload_grid

CORE = " × the speed of one host core for these nodes"


def offload(name: str, target: str, **cost: Any) -> dict[str, Any]:
    given = {
        "cycles": 2060, "compute_cycles": 51, "transfer_cycles": 2009, "nanoseconds": 4120, "host_nanoseconds": 700, "bytes": 4592,
        "unit": "core", "utilisation": 0.0019, "bound": "transfer", "estimated": False, **cost,
    }  # fmt: skip
    return {"id": name, "target": target, "operation": "linear", "shape": {"t": 1, "n": 16}, "device_calls": 1, "cost": given}


def test_one_line_a_target() -> None:
    found = [offload("a", "flexasr"), offload("b", "vta", estimated=True, cycles=100, transfer_cycles=25), offload("c", "flexasr")]
    assert cost_texts([*found, {"id": "d", "target": "mine", "cost": None}]) == [
        f"4,120 cycles on flexasr, 97.5% of them transfers · 9,184 bytes · 8.2 µs, 0.17{CORE} (1.4 µs)",
        f"100 cycles on vta, estimated, 25.0% of them transfers · 4,592 bytes · 4.1 µs, 0.17{CORE} (0.7 µs)",
    ]


def test_the_whole_application_both_ways() -> None:
    found = {"offloads": [offload("a", "flexasr")], "application": {"host_nanoseconds": 72_800, "nanoseconds": 15_140}}
    took = "the whole application takes {} µs with its offloads on the device, {} µs on one host core"
    assert application_texts(found) == [took.format("15.1", "72.8")]
    slower = {**found, "application": {"host_nanoseconds": 1_000, "nanoseconds": 2_000}}
    assert application_texts(slower) == ["! slower: " + took.format("2.0", "1.0")]
    assert application_texts({**found, "application": None}) == application_texts({**found, "offloads": []}) == []


def test_each_offload() -> None:
    found = [offload("a", "flexasr"), offload("b", "vta", utilisation=None, estimated=True, bound="compute")]
    lines = offload_grid([*found, {**offload("c", "mine"), "cost": None}])
    assert [line.split() for line in lines[2:]] == [
        ["a", "flexasr.linear", "t=1", "n=16", "1", "2,060", "transfer,", "0.2%", "of", "core", "4,592"],
        ["b", "vta.linear", "t=1", "n=16", "1", "~2,060", "compute", "4,592"],
        ["c", "mine.linear", "t=1", "n=16", "1", "–", "–", "–"],
    ]
    assert offload_grid([]) == []
