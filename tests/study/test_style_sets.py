"""Styles of the shipped applications: the same offloads whatever the spelling; a difference would be told."""

from __future__ import annotations

import pytest

from rewrite_compiler.apps import APPS, App
from rewrite_compiler.study.checks.perturb import OffloadSignature, difference, styles
from rewrite_compiler.target import find_target


@pytest.mark.parametrize("target", ["flexasr", "hlscnn", "vta"])
@pytest.mark.parametrize("app", APPS, ids=lambda a: a.name)
def test_a_spelling_changes_no_offload(app: App, target: str) -> None:
    for style in styles(app.model, find_target(target), range(2)):
        assert style.applied
        assert style.is_same, style


def test_offloads_are_told_apart_by_operation_shape_and_weight() -> None:
    one = OffloadSignature("t.linear", ((2, 3), (4, 3)), (1.0,))
    others = [
        OffloadSignature("t.dense", one.shapes, one.sizes),
        OffloadSignature("t.linear", ((1, 3), (4, 3)), one.sizes),
        OffloadSignature("t.linear", one.shapes, (1.01,)),
    ]
    assert difference([one], [OffloadSignature("t.linear", one.shapes, (1.0001,))]) == ((), ())
    for other in others:
        assert difference([one, one], [one, other]) == ((one,), (other,))
