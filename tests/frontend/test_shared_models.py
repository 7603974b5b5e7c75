"""Real models: every node accounted for, the operations expected, the results onnxruntime gives."""

from __future__ import annotations

import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import check_accounts, close, feeds, host, session

from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.frontend.load import load
from rewrite_compiler.hostrun import Session
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.verify import verify

pytestmark = pytest.mark.shared

# model → counts of core operations; "opaque" by source operator
MODELS: dict[str, dict[str, int]] = {
    "trained/resnet20_ts17.onnx": {"conv": 19, "dense": 1, "bias_add": 20, "relu": 19, "add": 9, "average_pool": 1, "pad": 2, "slice": 4},
    "trained/resnet20_dyn18.onnx": {"conv": 19, "dense": 1, "bias_add": 20, "relu": 19, "add": 9, "average_pool": 1, "pad": 2, "slice": 4},
    "trained/resnet20_ts13_bn.onnx": {"conv": 19, "dense": 1, "batch_norm": 19, "bias_add": 1},
    "trained/mnist-8.onnx": {"conv": 2, "matmul": 1, "add": 3, "relu": 2, "max_pool": 2, "reshape": 1},
    "trained/kws_dscnn_mlperf_float.onnx": {"conv": 9, "matmul": 1, "softmax": 1},
    "trained/kws_dscnn_mlperf_int8qdq.onnx": {"integer_conv": 10, "integer_dense": 1, "requantize": 11},
    "trained/mbv2_cifar10_float.onnx": {"conv": 52, "matmul": 1, "clip": 35},
    "trained/mbv2_cifar10_int8.onnx": {"integer_conv": 53, "quantized_add": 11, "integer_dense": 1, "requantize": 54},
    "trained/mobilenetv2-12-float.onnx": {"conv": 52, "matmul": 1, "reduce_mean": 1},
    "trained/mobilenetv2-12-int8.onnx": {"integer_conv": 53, "quantized_add": 10, "requantize": 54},
    "wlm/wlm_h128_lstm_dyn18.onnx": {"lstm": 1, "matmul": 1, "gather": 1, "log_softmax": 1},
    "wlm/wlm_h128_unrolled_dyn18.onnx": {"dense": 70, "matmul": 1, "sigmoid": 105, "tanh": 70},
    "arch/efficientnet_nose.dyn18.onnx.xz": {"conv": 51, "sigmoid": 34},
    "arch/efficientnet_nose.ts13.nofold.onnx.xz": {"conv": 51, "batch_norm": 50},
    "arch/efficientnet_nose.ts17.onnx.xz": {"conv": 51, "bias_add": 50},
    "arch/hf_bert_tiny.dyn18.onnx.xz": {"matmul": 16, "dense": 2, "layer_norm": 5, "softmax": 2},
    "arch/hf_bert_tiny.ts17.onnx.xz": {"matmul": 16, "dense": 2, "layer_norm": 5, "softmax": 2},
    "arch/hf_bert_tiny_sdpa.dyn23.onnx.xz": {"matmul": 16, "dense": 2, "layer_norm": 5, "softmax": 2, "erf": 2},
    "arch/lstm_unroll.tf2onnx.onnx.xz": {"dense": 35, "matmul": 35},
    "arch/lstm_wlm.dyn18.onnx.xz": {"lstm": 1, "matmul": 1},
    "arch/lstm_wlm.ts17.onnx.xz": {"lstm": 1, "matmul": 1},
    "arch/lstm_wlm_unrolled.dyn18.onnx.xz": {"dense": 35, "matmul": 1},
    "arch/mobilenetv2.tf2onnx.onnx.xz": {"conv": 52, "matmul": 1},
    "arch/mobilenetv2_cifar.dyn18.onnx.xz": {"conv": 57, "dense": 1},
    "arch/mobilenetv2_cifar.ts13.nofold.onnx.xz": {"conv": 57, "dense": 1, "batch_norm": 57},
    "arch/mobilenetv2_cifar.ts17.onnx.xz": {"conv": 57, "dense": 1},
    "arch/resmlp_cifar.dyn18.onnx.xz": {"conv": 12, "matmul": 25, "dense": 1},
    "arch/resmlp_cifar.ts17.onnx.xz": {"conv": 12, "matmul": 25, "dense": 1},
    "arch/resnet20_b.dyn18.onnx.xz": {"conv": 21, "dense": 1, "reduce_mean": 1},
    "arch/resnet20_b.ts13.nofold.onnx.xz": {"conv": 21, "dense": 1, "batch_norm": 21},
    "arch/resnet20_b.ts17.onnx.xz": {"conv": 21, "dense": 1, "bias_add": 22},
    "arch/resnet50.tf2onnx.onnx.xz": {"conv": 53, "matmul": 1},
    "arch/transformer.dyn18.onnx.xz": {"matmul": 84, "dense": 18, "layer_norm": 32, "softmax": 18},
    "arch/transformer_explicit.ts17.onnx.xz": {"matmul": 132, "layer_norm": 32, "softmax": 18},
    "arch/transformer_small.dyn18.onnx.xz": {"matmul": 28, "dense": 6, "layer_norm": 12},
    "arch/tv_resnet50.ts17.onnx.xz": {"conv": 53, "dense": 1},
}
# too large to evaluate in the time a test has
HEAVY = {
    "trained/mobilenetv2-12-float.onnx",
    *(
        f"arch/{name}.onnx.xz"
        for name in (
            "efficientnet_nose.dyn18",
            "efficientnet_nose.ts17",
            "lstm_wlm.dyn18",
            "lstm_wlm.ts17",
            "lstm_wlm_unrolled.dyn18",
            "mobilenetv2.tf2onnx",
            "mobilenetv2_cifar.ts17",
            "resmlp_cifar.ts17",
            "resnet50.tf2onnx",
            "transformer.dyn18",
            "transformer_explicit.ts17",
            "tv_resnet50.ts17",
        )
    ),
}


@pytest.fixture
def unpacked(request: pytest.FixtureRequest, shared_dir: Path, tmp_path: Path) -> Iterator[Path]:
    """One of the models as a file."""
    path = shared_dir / "models" / request.param
    if path.suffix == ".xz":
        plain = tmp_path / path.stem
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        path = plain
    yield path
    if path.parent == tmp_path:
        path.unlink()


def counted(loaded: Any) -> Counter[str]:
    """Return how often each operation occurs; opaque ones by their source operator."""
    p = loaded.program
    return Counter(p.opaque_of(n).op_type if n.op == "opaque" else n.op for n in p.nodes)


def test_every_model_is_listed(shared_dir: Path) -> None:
    folder = shared_dir / "models"
    assert {str(p.relative_to(folder)) for p in folder.glob("*/*.onnx*")} == set(MODELS)


@pytest.mark.parametrize(("unpacked", "name"), [(n, n) for n in MODELS], indirect=["unpacked"], ids=list(MODELS))
def test_a_real_model_is_imported(unpacked: Path, name: str) -> None:
    loaded = load(unpacked)
    verify(loaded.program)
    check_accounts(loaded.program, len(onnx.load(unpacked, load_external_data=False).graph.node))
    found = counted(loaded)
    assert {op: found[op] for op in MODELS[name]} == MODELS[name]
    assert loaded.program.notes == () or "is not fixed by the model" in loaded.program.notes[0]
    if name in HEAVY:
        return
    fed = feeds(loaded.program, 1)
    named = {loaded.program.names[v]: x for v, x in fed.items()}
    if "int8" in name:  # the meaning's exact products round a tie now and then otherwise than float32 ones do
        results = dict(zip(loaded.program.outputs, Session(to_onnx(loaded.program)).run(named).values(), strict=True))
    else:
        results = run(loaded.program, fed, real=np.float32, opaque=host(loaded))
    wanted = session(onnx.load(unpacked)).run(None, named)
    for v, expected in zip(loaded.program.outputs, wanted, strict=True):
        close(results[v], expected, 1e-5 if expected.dtype.kind == "f" else 0)


def test_three_export_styles_of_one_network_agree(shared_dir: Path) -> None:
    programs = [load(shared_dir / "models" / "trained" / f"resnet20_{style}.onnx").program for style in ("ts17", "dyn18", "ts13_bn")]
    image = np.random.default_rng(2).standard_normal((1, 3, 32, 32)).astype(np.float32)
    first, *others = (run(p, {p.inputs[0]: image}, real=np.float64)[p.outputs[0]] for p in programs)
    for other in others:
        close(other, first, 1e-5)


def test_weights_of_a_real_model_are_not_copied(shared_dir: Path) -> None:
    p = load(shared_dir / "models" / "wlm" / "wlm_h128_lstm_dyn18.onnx").program
    large = [x for x in p.constants.values() if x.nbytes > 1 << 16]
    assert large
    assert not any(x.flags.owndata for x in large)
