"""Prices of offloads: what overlap hides, what stays on a device, and what the host adds of partial sums."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rewrite_compiler.fit import overlap as overlaps
from rewrite_compiler.fit.cost import Bound, Price, partial_sum_elements
from rewrite_compiler.fit.mapping.calls import Tiling
from rewrite_compiler.fit.overlap import Overlap
from rewrite_compiler.target import Cost


def price(compute: int, transfer: int, **others: Any) -> Price:
    return Price(Cost("unit", compute, transfer, {"x": 30, "y": 10}), 10**12, 4, **others)


@pytest.mark.parametrize(("compute", "transfer", "hidden"), [(70, 60, 60), (60, 70, 60), (90, 95, 80), (0, 9, 0), (9, 0, 0)])
def test_overlap_hides_no_more_than_computation_or_transfers_take(compute: int, transfer: int, hidden: int) -> None:
    p = price(compute, transfer, overlap=Overlap(20, 100, ()))
    assert (p.hidden_cycles, p.cycles) == (hidden, compute + transfer - hidden)
    assert price(compute, transfer).hidden_cycles == 0
    assert p.bound is (Bound.TRANSFER if transfer > compute else Bound.COMPUTE)


@pytest.mark.parametrize(("stayed", "transfer"), [(0, 100), (10, 75), (20, 50), (40, 0)])
def test_bytes_that_stay_take_no_cycles_of_the_links(stayed: int, transfer: int) -> None:
    p = price(70, 100).without_bytes(stayed)
    assert (p.bytes, p.cost.transfer_cycles, p.cost.compute_cycles, p.cycles) == (40 - stayed, transfer, 70, 70 + transfer)
    assert p.picoseconds == 70 + transfer


@pytest.mark.parametrize(("tile", "added"), [((3, 4, 10), 0), ((1, 1, 10), 0), ((3, 4, 5), 12), ((3, 2, 4), 24), ((3, 4, 1), 108)])
def test_the_host_adds_all_parts_of_a_sum_but_one(tile: tuple[int, int, int], added: int) -> None:
    operation: Any = SimpleNamespace(axes=SimpleNamespace(summed=("k",), result="y", of={"y": ("m", "n")}))
    tiling = Tiling(dict(zip("mnk", (3, 4, 10), strict=True)), dict(zip("mnk", tile, strict=True)))
    assert partial_sum_elements(operation, tiling) == added
    assert price(1, 1, added_elements=added).host_bytes == 12 * added
    assert sum(calls for _, calls in tiling.regions()) == tiling.calls == len([*tiling.slices()])
    assert sum(calls * sizes["m"] * sizes["n"] * sizes["k"] for sizes, calls in tiling.regions()) == 120


@pytest.mark.parametrize("calls", [1, 48, 49, 60, 100])
def test_calls_beyond_those_that_are_timed_take_as_long_as_the_last_ones(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen calls of the last period take a cycle more than 16 · 7: rounded up, and no more than one after the other."""

    def timeline(commands: list[int], rooms: Any) -> Any:
        n = len(commands)
        return SimpleNamespace(cycles=100 + 7 * n + n // 16, stalls=dict, busy=dict)

    monkeypatch.setattr(overlaps, "timeline", timeline)
    monkeypatch.setattr(overlaps, "overlapping_memories", lambda resources: {"inp": 2})
    monkeypatch.setattr(overlaps, "memories_of", lambda *_: {})
    monkeypatch.setattr(overlaps, "call_commands", lambda m, cost, places: [1])
    for serial in (20, 3):
        operation: Any = SimpleNamespace(price=1, cost=lambda *_, n=serial: Cost("unit", n, 0, {}))
        found = overlaps.overlap(operation, Tiling({"n": calls}, {"n": 1}), {}, SimpleNamespace())  # type: ignore[arg-type]
        assert found is not None
        timed = min(calls, 48)
        cycles = 100 + 7 * timed + timed // 16 + -(-113 * (calls - timed) // 16)
        assert (found.cycles, found.serial_cycles) == (min(cycles, serial * calls), serial * calls)
