"""What of an offload's tensors may stay on a device: whole ones only, in memories that hold them, and what others read goes back."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import compile_model
from rewrite_compiler.compile.plan.plan import Offload, tensors_of
from rewrite_compiler.compile.plan.residency import _Device
from rewrite_compiler.errors import SpecError
from rewrite_compiler.fit.residency import CONSTANT, IN, OUT, SCRATCH, Call, Piece
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.target import Room


def role(device: Any, o: Offload, tensor: str, *, lasting: bool = False) -> str:
    found: Piece = _Device.piece(device, o, Room("large", 8, tensor, lasting=lasting), tensors_of(o), {tensor: 3})
    assert (found.tensor, found.link_bytes) == (tensor, 3)
    return found.role


def test_a_result_whose_sums_are_cut_or_an_operand_of_parts_does_not_stay() -> None:
    plan = compile_model(find_application("digits_mlp").model, ["flexasr"])
    o, device = plan.offloads[1], SimpleNamespace(p=plan.program, alias_of={})
    axes, sizes = o.mapping.axes, o.tiling.sizes
    whole = replace(o, tiling=replace(o.tiling, tile=sizes))
    assert [role(device, whole, t) for t in ("x", axes.result)] == [IN, OUT]
    assert [role(device, whole, "w", lasting=x) for x in (True, False)] == [CONSTANT, SCRATCH]
    for d in (d for d, n in sizes.items() if n > 1):
        cut = replace(o, tiling=replace(o.tiling, tile={**sizes, d: sizes[d] // 2}))
        assert role(device, cut, axes.result) == SCRATCH
        assert role(device, cut, "x") == (SCRATCH if d in axes.of["x"] else IN)


def test_a_tensor_that_only_renames_another_is_that_one() -> None:
    axes = SimpleNamespace(of={"x": ("m", "k"), "y": ("m", "n")}, results=("y",))
    sizes = {"m": 2, "n": 3, "k": 4}
    o: Any = SimpleNamespace(mapping=SimpleNamespace(axes=axes), tiling=SimpleNamespace(tile=sizes, sizes=sizes))
    device: Any = SimpleNamespace(p=SimpleNamespace(constants={}), alias_of={5: 4})
    pieces = [_Device.piece(device, o, Room("large", 8, name, form=(2,)), {"x": 5, "y": 6}, {"x": 32}) for name in ("x", "y")]
    assert [(p.value, p.form, p.size, p.role, p.link_bytes) for p in pieces] == [(4, (2,), 8, IN, 32), (6, (2,), 8, OUT, 0)]


def test_a_room_is_no_larger_than_its_memory() -> None:
    o = compile_model(find_application("digits_mlp").model, ["flexasr"]).offloads[0]
    device: Any = SimpleNamespace(resources=SimpleNamespace(memories=[SimpleNamespace(name="large", elements=64)]))
    _Device.check_rooms(device, o, [Room("large", 64, "x"), Room("elsewhere", 65, "w")])
    with pytest.raises(SpecError, match=r"that fit \(large has 64 elements\), not one of 65"):
        _Device.check_rooms(device, o, [Room("large", 64, "x"), Room("large", 65, "w")])


@pytest.mark.parametrize("is_resident", [True, False])
def test_what_a_renamed_output_shows_is_read_elsewhere(is_resident: bool) -> None:
    """An output that only renames the result of an offload is that result; an operand in the device's own memory is no reading."""
    b = Builder("renamed")
    x = b.input("x", TensorType((2, 3)))
    (y,) = b.apply("relu", [x])
    (z,) = b.apply("reshape", [y], {"shape": (6,)})
    p = b.finish([z])
    offload = SimpleNamespace(node=p.nodes[0])
    calls = [Call((Piece("x", "large", 6, IN, 6, x),) if is_resident else ())]
    device: Any = SimpleNamespace(p=p, offloads=[offload], calls=calls, owner=[(offload, 0)], alias_of={z: y})
    assert {*_Device.read_elsewhere(device)} == ({y} if is_resident else {x, y})
