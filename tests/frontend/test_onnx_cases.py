"""The test cases that the onnx package keeps for each operator: agreement or a refusal, never a wrong result."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx.backend.test.loader
import pytest
from onnx import TensorProto, numpy_helper
from onnx_models import FILE, check_accounts

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.graph.opset_upgrade import NEWEST
from rewrite_compiler.frontend.load import import_model
from rewrite_compiler.frontend.normalise import LOWERINGS
from rewrite_compiler.frontend.site.constant_folding import FOLDS
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.program import Program
from rewrite_compiler.limits import DEFAULT

OURS = {*LOWERINGS, *FOLDS, "Attention", "RMSNormalization", "MeanVarianceNormalization", "RotaryEmbedding", "Softplus", "Swish", "Mish"}
DATA = Path(onnx.backend.test.loader.__file__).parents[1] / "data"


def node_cases() -> list[Any]:
    """Return the cases of operators that are known here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [c for c in found if {n.op_type for n in c.model.graph.node} <= OURS]


def brought_down(proto: Any) -> None:
    """Declare the newest known operator set in cases written for a newer one; which operators changed shows in their results."""
    for entry in proto.opset_import:
        if entry.domain == "" and entry.version > NEWEST:
            entry.version = NEWEST


def understood(proto: Any) -> Program | None:
    """Return the program of a case when all of it is known here."""
    try:
        p = import_model(proto, Path(FILE), "", {}, DEFAULT).program
    except FlexmatchError:
        return None
    check_accounts(p, len(proto.graph.node))
    return None if p.opaque else p


def same(p: Program, inputs: list[Any], outputs: list[Any], tolerance: float) -> bool:
    """Tell whether a program gives the outputs of a case."""
    found = run(p, {v: np.asarray(x) for v, x in zip(p.inputs, inputs, strict=True)})
    for v, expected in zip(p.outputs, outputs, strict=True):
        wanted, got = np.asarray(expected), np.asarray(found[v])
        slack = 2e-3 if wanted.dtype == np.float16 else tolerance
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=slack, atol=slack, equal_nan=True):
            return False
    return True


def is_plain(x: Any) -> bool:
    """Tell whether a value of a case is an array of an ordinary type."""
    return isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biuf"


def test_cases_of_known_operators() -> None:
    agreed, wrong = 0, []
    for case in node_cases():
        brought_down(case.model)
        p = understood(case.model)
        sets = [(i, o) for i, o in case.data_sets if all(map(is_plain, (*i, *o)))]
        if p is None or not sets:
            continue
        if all(same(p, list(i), list(o), case.rtol) for i, o in sets):
            agreed += 1
        else:
            wrong.append(case.name)
    assert wrong == []
    assert agreed >= 300


def tensor(path: Path) -> Any:
    """Return a stored tensor."""
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


@pytest.mark.parametrize("kind", ["pytorch-operator", "pytorch-converted"])
def test_exported_cases(kind: str) -> None:
    agreed = 0
    for folder in sorted((DATA / kind).iterdir()):
        proto = onnx.load(folder / "model.onnx")
        assert all(entry.version <= 6 for entry in proto.opset_import)
        p = understood(proto)
        if p is None:
            continue
        inputs = [tensor(folder / "test_data_set_0" / f"input_{n}.pb") for n in range(len(p.inputs))]
        outputs = [tensor(folder / "test_data_set_0" / f"output_{n}.pb") for n in range(len(p.outputs))]
        assert same(p, inputs, outputs, 1e-3), folder.name
        agreed += 1
    assert agreed >= {"pytorch-operator": 10, "pytorch-converted": 50}[kind]


@pytest.mark.parametrize(
    "name", ["resnet50", "densenet121", "inception_v1", "inception_v2", "shufflenet", "squeezenet", "vgg19", "zfnet512"]
)
def test_light_models_are_imported(name: str) -> None:
    proto = onnx.load(DATA / "light" / f"light_{name}.onnx")
    loaded = import_model(proto, Path(FILE), "", {}, DEFAULT)
    check_accounts(loaded.program, len(proto.graph.node))
    assert {o.op_type for o in loaded.program.opaque.values()} <= {"LRN"}
