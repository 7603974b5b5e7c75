"""Real exporters' models: how much of them FlexASR takes, every node accounted for, every extraction proved cheapest."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from plan_checks import check_account, check_semantics, verify_program

from rewrite_compiler.compile import Plan, compile_model

# model → linear layers with all rules, with an exact pattern only
ARCH = {
    "efficientnet_nose.dyn18": (35, 0),
    "efficientnet_nose.ts13.nofold": (35, 0),
    "efficientnet_nose.ts17": (35, 0),
    "hf_bert_tiny.dyn18": (14, 0),
    "hf_bert_tiny.ts17": (14, 2),
    "hf_bert_tiny_sdpa.dyn23": (14, 0),
    "lstm_unroll.tf2onnx": (1, 35),
    "lstm_wlm.dyn18": (1, 0),
    "lstm_wlm.ts17": (1, 0),
    "lstm_wlm_unrolled.dyn18": (1, 35),
    "mobilenetv2.tf2onnx": (36, 0),
    "mobilenetv2_cifar.dyn18": (41, 1),
    "mobilenetv2_cifar.ts13.nofold": (41, 1),
    "mobilenetv2_cifar.ts17": (41, 1),
    "resmlp_cifar.dyn18": (38, 1),
    "resmlp_cifar.ts17": (38, 1),
    "resnet20_b.dyn18": (22, 1),
    "resnet20_b.ts13.nofold": (22, 1),
    "resnet20_b.ts17": (22, 1),
    "resnet50.tf2onnx": (54, 0),
    "transformer.dyn18": (66, 0),
    "transformer_explicit.ts17": (96, 0),
    "transformer_small.dyn18": (22, 0),
    "tv_resnet50.ts17": (54, 1),
}
TRAINED = {
    "trained/kws_dscnn_mlperf_float": (6, 1),
    "trained/kws_dscnn_mlperf_int8qdq": (0, 0),  # its products are of codes, FlexASR's of real numbers
    "trained/mnist-8": (3, 1),
    "trained/resnet20_dyn18": (20, 1),
    "trained/resnet20_ts13_bn": (20, 1),
    "trained/resnet20_ts17": (20, 1),
    "wlm/wlm_h128_lstm_dyn18": (1, 0),
    "wlm/wlm_h128_unrolled_dyn18": (1, 70),
}


def check(plan: Plan, model: Path, expected: tuple[int, int]) -> None:
    counts, exact = plan.counts["flexasr"], plan.exact_counts["flexasr"]
    assert (counts.get("linear", 0), exact.get("linear", 0)) == expected
    check_any(plan, model)


def check_any(plan: Plan, model: Path) -> None:
    assert plan.egraph["stop"]["reason"] == "saturated"
    assert (plan.extraction["status"], plan.extraction["gap"]) == ("optimal", 0.0)
    check_account(plan)
    verify_program(plan)
    check_semantics(plan, model)


@pytest.mark.shared
def test_every_exporters_file_has_its_row(shared_dir: Path) -> None:
    assert {p.name.removesuffix(".onnx.xz") for p in (shared_dir / "models" / "arch").glob("*.xz")} == ARCH.keys()


@pytest.mark.shared
@pytest.mark.parametrize("name", ARCH)
def test_exporters_models(name: str, shared_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / f"{name}.onnx"
    model.write_bytes(lzma.decompress((shared_dir / "models" / "arch" / f"{name}.onnx.xz").read_bytes()))
    plan = compile_model(model, ["flexasr"])
    check(plan, model, ARCH[name])
    assert plan.counts["flexasr"].get("lstm", 0) == (1 if name.startswith("lstm_") else 0)


@pytest.mark.shared
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models(name: str, shared_dir: Path) -> None:
    model = shared_dir / "models" / f"{name}.onnx"
    check(compile_model(model, ["flexasr"]), model, TRAINED[name])


@pytest.mark.shared
def test_a_quantised_model_goes_to_the_accelerator_of_integers(shared_dir: Path) -> None:
    model = shared_dir / "models" / "trained" / "kws_dscnn_mlperf_int8qdq.onnx"
    plan = compile_model(model, ["vta"])
    assert plan.counts == plan.exact_counts == {"vta": {"conv2d": 5, "depthwise": 5, "dense": 1, "alu": 11}}
    assert not [h for h in plan.host if h.op in ("Conv", "AveragePool")]  # a mean of codes is a depthwise sum
    assert plan.calibrated
    check_any(plan, model)
