"""Residency in a fixed order: the integer program saves what trying everything saves, and no two tensors share a place."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from rewrite_compiler.fit.residency import (
    CONSTANT,
    IN,
    OUT,
    SCRATCH,
    Call,
    Piece,
    ResidencyProblem,
    Role,
    assign_addresses,
    bytes_saved_by,
    fits,
    gaps_of,
    solve_residency,
)

INSTANCES = 320


def question(seed: int) -> ResidencyProblem:
    """Calls of one device with two memories; values are made once and read later, some of them elsewhere too."""
    draw = random.Random(seed)
    calls: list[Call] = []
    made: list[Piece] = []
    for n in range(draw.randint(2, 5)):
        pieces = []
        for k, x in enumerate(draw.sample(made, min(len(made), draw.randint(0, 2)))):
            pieces.append(Piece(f"x{k}", "large", x.size, IN, x.link_bytes, x.value, x.form))
        if draw.random() < 0.7:
            pieces.append(Piece("w", "weight", draw.randint(1, 4), CONSTANT, draw.randint(1, 50)))
        if draw.random() < 0.2:
            pieces.append(Piece("s", "large", draw.randint(1, 3), SCRATCH))
        y = Piece("y", "large", draw.randint(1, 4), OUT, draw.randint(1, 50), n, (draw.randint(1, 2),))
        made.append(y)
        calls.append(Call((*pieces, y), is_opaque=draw.random() < 0.05))
    capacities = {m: max(sum(p.size for p in c.pieces if p.memory == m) for c in calls) + draw.randint(0, 3) for m in ("large", "weight")}
    elsewhere = frozenset(p.value for p in made if draw.random() < 0.3) | {made[-1].value}
    return ResidencyProblem(tuple(calls), capacities, elsewhere)


def best(q: ResidencyProblem) -> int:
    """The most that any choice saves, by trying all of them."""
    gaps, unread = gaps_of(q)
    choices = (frozenset(x) for count in range(len(gaps) + 1) for x in itertools.combinations(range(len(gaps)), count))
    return max(bytes_saved_by(gaps, unread, chosen) for chosen in choices if fits(q, [gaps[n] for n in chosen]))


def test_the_program_saves_what_trying_everything_saves() -> None:
    something = limited = 0
    for seed in range(INSTANCES):
        q = question(seed)
        found = solve_residency(q)
        assert found.upper_bound == best(q), seed
        assert fits(q, found.gaps), seed
        assert found.saved_bytes <= found.upper_bound
        something += found.saved_bytes > 0
        gaps, unread = gaps_of(q)
        limited += found.upper_bound < bytes_saved_by(gaps, unread, frozenset(range(len(gaps))))
    assert something > INSTANCES // 2
    assert limited > INSTANCES // 10  # instances in which a capacity decides


def test_tensors_that_lie_somewhere_at_once_lie_apart() -> None:
    for seed in range(INSTANCES):
        q = question(seed)
        found = solve_residency(q)
        for n, call in enumerate(q.calls):
            mine = [(found.addresses[n, k], p) for k, p in enumerate(call.pieces) if found.addresses]
            across = [(found.addresses[g.start], q.piece(g.start)) for g in found.gaps if g.is_live_across(n)]
            for (a, p), (b, r) in itertools.combinations([*mine, *across], 2):
                assert p.memory != r.memory or a + p.size <= b or b + r.size <= a, seed
            assert all(a + p.size <= q.capacities[p.memory] for a, p in mine)


def test_a_tensor_lies_beyond_all_that_lie_there_at_some_time_of_its_life() -> None:
    """A large tensor lives before two small ones in its place, one of which begins later and ends earlier; the last one meets all three."""

    def piece(value: int, size: int, role: Role) -> Piece:
        return Piece(f"x{value}", "large", size, role, 9, value)

    calls = [Call(())] * 6
    for value, size, first, last in ((0, 8, 0, 2), (1, 2, 3, 5), (2, 2, 3, 5), (3, 2, 2, 3)):
        for at, role in ((first, OUT), (last, IN)):
            calls[at] = Call((*calls[at].pieces, piece(value, size, role)))
    q = ResidencyProblem(tuple(calls), {"large": 10})
    found, _ = gaps_of(q)
    addresses = assign_addresses(q, found)
    assert addresses is not None
    assert {q.piece(at).value: place for at, place in addresses.items()} == {0: 0, 1: 0, 2: 2, 3: 8}
    assert assign_addresses(ResidencyProblem(tuple(calls), {"large": 9}), found) is None


def test_what_does_not_fit_gets_no_addresses() -> None:
    calls = (Call((Piece("w", "weight", 3, CONSTANT, 9),)), Call((Piece("w", "weight", 2, CONSTANT, 9),)))
    q = ResidencyProblem(calls, {"weight": 4})
    gaps, _ = gaps_of(q)
    assert assign_addresses(q, gaps) is None
    assert (solve_residency(q).saved_bytes, solve_residency(q).gaps) == (0, ())  # either one needs the other's place while it runs
    assert solve_residency(ResidencyProblem(calls, {"weight": 5})).saved_bytes == 18


def gaps(*calls: Call, elsewhere: frozenset[int] = frozenset()) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the calls between which tensors may stay, and those whose results may go unread."""
    found, unread = gaps_of(ResidencyProblem(calls, {"large": 100}, elsewhere))
    return [(g.start[0], g.end[0]) for g in found], [u.result[0] for u in unread]


def made(value: int = 7, **others: Any) -> Call:
    return Call((replace(Piece("y", "large", 4, OUT, 9, value, (2,)), **others),))


def taken(value: int = 7, **others: Any) -> Call:
    return Call((replace(Piece("x", "large", 4, IN, 9, value, (2,)), **others),))


def test_a_tensor_stays_in_one_memory_form_and_size_with_no_opaque_call_between() -> None:
    opaque = Call((), is_opaque=True)
    assert gaps(made(), taken()) == ([(0, 1)], [0])
    assert gaps(made(), taken(), taken()) == ([(0, 1), (1, 2)], [0])
    for others in ({"memory": "small"}, {"form": (4,)}, {"size": 5}, {"value": 8}):
        assert gaps(made(), taken(**others)) == ([], [])
    assert gaps(made(), opaque, taken()) == ([], [])
    assert gaps(opaque, made(), taken(), opaque) == ([(1, 2)], [1])
    assert gaps(made(), made()) == ([], [])
    assert gaps(taken(), taken()) == ([(0, 1)], [])
    assert gaps(made(), taken(), elsewhere=frozenset({7})) == ([(0, 1)], [])
    assert gaps(made(), taken(), taken(form=(4,))) == ([(0, 1)], [])


def test_constants_stay_where_no_call_is_opaque() -> None:
    weights = Call((Piece("w", "large", 4, CONSTANT, 9),))
    assert gaps(weights, made()) == ([(0, 0)], [])
    assert gaps(weights, made(), Call((), is_opaque=True)) == ([], [])


def test_results_go_unread_only_where_all_their_gaps_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = made(), taken(), taken(), made(8), taken(8)
    for most, unread in ((3, [0, 3]), (2, [0]), (1, [])):
        monkeypatch.setattr("rewrite_compiler.fit.residency.MAX_GAPS", most)
        assert gaps(*calls) == ([(0, 1), (1, 2), (3, 4)][:most], unread)
