"""Traffic: the closed form equals a loop nest that is run step by step, and published counts; what is no legal mapping is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flexmatch
from rewrite_compiler.errors import InputError
from rewrite_compiler.fit.mapping.sums import distinct_sums
from rewrite_compiler.fit.traffic import traffic

MATMUL = {"tensors": {"A": [{"M": 1}, {"K": 1}], "B": [{"K": 1}, {"N": 1}], "Z": [{"M": 1}, {"N": 1}]}, "output": "Z"}
CONV_AXES = {"W": [{"K": 1}, {"C": 1}, {"R": 1}], "O": [{"K": 1}, {"P": 1}]}
Loops = list[list[Any]]


def conv(stride: int, dilation: int = 1) -> dict[str, Any]:
    return {"tensors": {**CONV_AXES, "I": [{"C": 1}, {"P": stride, "R": dilation}]}, "output": "O"}


@st.composite
def nests(draw: Any, names: str) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Sizes and a mapping on two or three memories: every prime factor of every size is a loop somewhere."""
    levels: list[dict[str, Any]] = [{"memory": f"L{n}", "spatial": [], "temporal": []} for n in range(draw(st.integers(2, 3)))]
    sizes = {d: draw(st.sampled_from((1, 2, 3, 4, 6))) for d in names}
    factors = [(d, p) for d, n in sizes.items() for p in (2, 2, 3) if n % p == 0]
    left = dict(sizes)
    for d, p in draw(st.permutations(factors)):
        if left[d] % p == 0:
            left[d] //= p
            kind = draw(st.sampled_from(("spatial", "temporal", "temporal")))
            draw(st.sampled_from(levels))[kind].append([d, p])
    assert set(left.values()) == {1}
    return sizes, levels


class Machine:
    """Runs a nest: every memory instance holds a set of elements; what moves is counted as it moves, at the instance 0 of each level."""

    def __init__(self, problem: Mapping[str, Any], levels: list[dict[str, Any]]) -> None:
        self.tensors, self.output, self.levels = problem["tensors"], problem["output"], levels
        self.loops = [(at, kind, d, n) for at, lv in enumerate(levels) for kind in ("spatial", "temporal") for d, n in lv.get(kind, [])]

    def elements(self, tensor: str, fixed: Mapping[int, int]) -> set[tuple[int, ...]]:
        """The elements that the loops without a fixed index run through."""
        ranges = [[fixed[k]] if k in fixed else range(n) for k, (*_, n) in enumerate(self.loops)]
        found = set()
        for index in itertools.product(*ranges):
            at: dict[str, int] = {}
            step: dict[str, int] = {}
            for (_, _, d, n), i in zip(self.loops, index, strict=True):
                at[d] = at.get(d, 0) + i * step.get(d, 1)
                step[d] = step.get(d, 1) * n
            found.add(tuple(sum(c * at.get(d, 0) for d, c in axis.items()) for axis in self.tensors[tensor]))
        return found

    def steps(self, above: int) -> Iterator[dict[int, int]]:
        """The indices of the temporal loops above a level, in the order of time."""
        mine = [k for k, (at, kind, *_) in enumerate(self.loops) if kind == "temporal" and at > above]
        for index in itertools.product(*(range(self.loops[k][3]) for k in reversed(mine))):
            yield dict(zip(reversed(mine), index, strict=True))

    def switches(self, tensor: str, level: int) -> Iterator[dict[int, int]]:
        """The moments at which the instances of a level get another tile; compute units take operands at every step."""
        moves = {d for axis in self.tensors[tensor] for d in axis}
        before: object = None
        for step in self.steps(level):
            place = tuple(i for k, i in step.items() if self.loops[k][2] in moves)
            if place != before or level < 0:
                before = place
                yield step

    def counts(self, tensor: str, level: int) -> dict[str, int]:
        above = {k: 0 for k, (at, kind, *_) in enumerate(self.loops) if kind == "spatial" and at > level}
        here = [len(self.elements(tensor, {**above, **step})) for step in self.switches(tensor, level)]
        moved = [self.elements(tensor, {**above, **step}) for step in self.switches(tensor, level - 1)]
        seen: set[tuple[int, ...]] = set()
        again = 0
        for part in moved:
            again += len(part & seen)
            seen |= part
        total, is_output = sum(map(len, moved)), tensor == self.output
        return {
            "tile": here[0], "instances": math.prod(self.loops[k][3] for k in above), "reads": again if is_output else total,
            "fills": sum(here) if level < len(self.levels) - 1 else 0, "updates": total if is_output else 0,
        }  # fmt: skip


def check(problem: dict[str, Any], nest: tuple[dict[str, int], list[dict[str, Any]]]) -> None:
    whole = {"dimensions": nest[0], **problem}
    machine = Machine(whole, nest[1])
    found = traffic(whole, nest[1])
    for at, level in enumerate(nest[1]):
        for tensor in whole["tensors"]:
            assert found[level["memory"]][tensor] == machine.counts(tensor, at), (tensor, level)


@settings(max_examples=120)
@given(nests("MNK"))
def test_a_product_counts_as_if_it_ran(nest: tuple[dict[str, int], list[dict[str, Any]]]) -> None:
    check(MATMUL, nest)


@settings(max_examples=80)
@given(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 3)]), nests("PRCK"))
def test_a_convolution_counts_as_if_it_ran(steps: tuple[int, int], nest: tuple[dict[str, int], list[dict[str, Any]]]) -> None:
    if math.prod(nest[0].values()) <= 300:
        check(conv(*steps), nest)


IMAGES = {"W": [{"K": 1}, {"C": 1}, {"R": 1}, {"S": 1}], "O": [{"K": 1}, {"P": 1}, {"Q": 1}]}


@settings(max_examples=60)
@given(st.sampled_from([(1, 1), (2, 1), (2, 3), (3, 2)]), nests("PQRSCK"))
def test_a_convolution_of_images_counts_as_if_it_ran(steps: tuple[int, int], nest: tuple[dict[str, int], list[dict[str, Any]]]) -> None:
    rows, cols = steps  # strides; a window may leave places out
    if math.prod(nest[0].values()) <= 200:
        check({"tensors": {**IMAGES, "I": [{"C": 1}, {"P": rows, "R": 1}, {"Q": cols, "S": 1}]}, "output": "O"}, nest)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), max_size=4))
def test_distinct_sums_are_counted(digits: list[tuple[int, int]]) -> None:
    sums = {sum(s * i for (s, _), i in zip(digits, index, strict=True)) for index in itertools.product(*(range(n) for _, n in digits))}
    assert distinct_sums(digits) == len(sums)


def test_published_counts_of_a_convolution() -> None:
    """One-dimensional convolution, channels side by side: counts printed by timeloop-accelergy-exercises, 04, `cp`.

    Weights and outputs are equal; inputs there count only the new elements of a window that slides, here whole tiles.
    """
    problem = {"dimensions": {"P": 16, "R": 3, "C": 32, "K": 32}, **conv(1)}
    mapping = [
        {"memory": "RegisterFile", "temporal": [["P", 16]]},
        {"memory": "GlobalBuffer", "spatial": [["C", 16]], "temporal": [["R", 3], ["K", 32], ["C", 2]]},
        {"memory": "MainMemory", "temporal": []},
    ]
    found = traffic(problem, mapping)
    expected = {
        ("RegisterFile", "W"): (1, 16, 3072, 192, 0), ("RegisterFile", "O"): (16, 16, 2560, 1024, 3072),
        ("GlobalBuffer", "W"): (3072, 1, 3072, 3072, 0), ("GlobalBuffer", "O"): (512, 1, 512, 512, 1024),
        ("MainMemory", "W"): (3072, 1, 3072, 0, 0), ("MainMemory", "O"): (512, 1, 0, 0, 512),
    }  # fmt: skip
    for (memory, tensor), numbers in expected.items():
        assert tuple(found[memory][tensor].values()) == numbers
    assert (found["RegisterFile"]["I"]["reads"], found["MainMemory"]["I"]["reads"]) == (3072, 576)  # as published
    assert found["RegisterFile"]["I"]["fills"] == 192 * 16  # published: 64 × 18, the window's new elements only


LARGE = {"dimensions": {"M": 256, "N": 16, "K": 256}, **MATMUL}
NESTED = [
    {"memory": "L1", "temporal": [["M", 4], ["K", 8], ["N", 8]]},
    {"memory": "L2", "spatial": [["M", 4], ["N", 2]], "temporal": [["K", 32], ["M", 4]]},
    {"memory": "DRAM", "temporal": [["M", 4]]},
]


def test_a_product_by_hand() -> None:
    found = flexmatch.traffic(LARGE, NESTED)
    assert found["L1"]["A"] == {"tile": 32, "instances": 8, "reads": 4 * 8 * 8 * 32 * 16, "fills": 32 * 32 * 16, "updates": 0}
    # A goes to both columns of instances at once, B to all four rows
    assert found["L2"]["A"]["reads"] == 4 * found["L1"]["A"]["fills"]
    assert found["L2"]["B"]["reads"] == 2 * found["L1"]["B"]["fills"]
    # K is innermost above L1: a tile of Z stays until all of its sum is there, so nothing is read back
    assert found["L1"]["Z"]["fills"] == 32 * 16
    assert found["L2"]["Z"] == {"tile": 64 * 16, "instances": 1, "reads": 0, "fills": 256 * 16, "updates": 256 * 16}
    assert found["DRAM"]["Z"] == {"tile": 256 * 16, "instances": 1, "reads": 0, "fills": 0, "updates": 256 * 16}
    assert found["DRAM"]["B"]["reads"] == 256 * 16  # all of B stays in L2


def edited(**changes: Any) -> dict[str, Any]:
    return {**LARGE, **changes}


def mapped(*levels: Any) -> list[Any]:
    return [*levels, *NESTED[len(levels) :]]


L1 = NESTED[0]
REFUSED: list[tuple[Any, Any, str]] = [
    ([], NESTED, "The problem must be an object, not []"),
    ({"dimensions": {}}, NESTED, 'The problem must have the key "tensors"'),
    (edited(x=1), NESTED, 'The problem must not have the key "x", only dimensions, tensors, output'),
    (edited(dimensions=[4]), NESTED, "Dimensions must be an object of names, not [4]"),
    (edited(dimensions={"M": 0}), NESTED, "Dimension M must be a positive integer, not 0"),
    (edited(dimensions={"M": True}), NESTED, "Dimension M must be a positive integer, not True"),
    (edited(dimensions={"M": 2.0}), NESTED, "Dimension M must be a positive integer, not 2.0"),
    (edited(tensors={"A": {"M": 1}}), NESTED, "Tensor A must be a list, not {'M': 1}"),
    (edited(tensors={"A": ["M"]}), NESTED, "An axis of tensor A must be an object of names, not 'M'"),
    (edited(tensors={"A": [{"Q": 1}]}), NESTED, "Tensor A must use a dimension of the problem (M, N, K), not 'Q'"),
    (edited(tensors={"A": [{"M": -1}]}), NESTED, "The coefficient of M in tensor A must be a positive integer, not -1"),
    (edited(tensors={"A": [{"M": 1}, {"M": 1}]}), NESTED, "Dimension M must run along one axis of tensor A, not along two"),
    (edited(output="Y"), NESTED, 'The output must be one of A, B, Z, not "Y"'),
    (LARGE, {}, "The mapping must be a list, not {}"),
    (LARGE, [], "The mapping must have at least one level, not none"),
    (LARGE, mapped(7), "A level of the mapping must be an object, not 7"),
    (LARGE, mapped({"temporal": []}), 'A level of the mapping must have the key "memory"'),
    (LARGE, mapped({**L1, "loops": []}), 'A level of the mapping must not have the key "loops", only memory, spatial, temporal'),
    (LARGE, mapped({**L1, "memory": ""}), "The memory of a level must be a name, not ''"),
    (LARGE, mapped({**L1, "memory": "L2"}), 'The memories of a mapping must differ, not be "L2" twice'),
    (LARGE, mapped({**L1, "temporal": 3}), "The temporal loops of L1 must be a list, not 3"),
    (LARGE, mapped({**L1, "temporal": [["M"]]}), "A temporal loop of L1 must be a dimension and a count, not ['M']"),
    (LARGE, mapped({**L1, "temporal": [["Q", 2]]}), "A temporal loop of L1 must use a dimension of the problem (M, N, K), not 'Q'"),
    (LARGE, mapped({**L1, "temporal": [["M", 0]]}), "The temporal loop of L1 over M must be a positive integer, not 0"),
    (LARGE, mapped({**L1, "temporal": [["M", 2], ["K", 8], ["N", 8]]}), "The loops over M must cover its 256 steps exactly, not 128"),
]  # fmt: skip


@pytest.mark.parametrize(("problem", "mapping", "sentence"), REFUSED, ids=[s for *_, s in REFUSED])
def test_what_is_no_mapping_is_refused(problem: Any, mapping: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        traffic(problem, mapping)
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("F230", sentence)


LIMITED = [
    ({"L1": {"elements": 127}}, "Tiles in L1 must be at most 127 elements, not 128"),
    ({"L2": {"fanout": 7}}, "Instances below L2 must be at most 7, not 8"),
    ({"L3": {}}, 'Limits must be of memories of the mapping (L1, L2, DRAM), not of "L3"'),
    ({"L1": {"bytes": 3}}, 'The bound of L1 must not have the key "bytes", only elements, fanout'),
    ({"L1": {"elements": 0}}, "The bound of L1 on elements must be a positive integer, not 0"),
]


@pytest.mark.parametrize(("limits", "sentence"), LIMITED, ids=[s for _, s in LIMITED])
def test_limits_are_kept(limits: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        traffic(LARGE, NESTED, limits)
    assert caught.value.problem.sentence == sentence
    assert traffic(LARGE, NESTED, {"L1": {"elements": 128}, "L2": {"fanout": 8}}) == traffic(LARGE, NESTED)
