"""A short campaign of `benchmarks/reliability.py`: mutants, random models, random limits, and equal bytes whatever surrounds a run."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from command import perceptron, process
from generate import seeds, valid_model
from harness import EQUAL, HOST_REFUSES, REFUSED, Finding, compiled, imported
from mutants import byte_mutant, structural_mutant
from streams import MODELS as DEVICES
from streams import Bench
from streams import run as run_stream
from together import compiled_in_process, joined, judged

from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.compile.document import plan_onnx
from rewrite_compiler.compile.verify import check_plan
from rewrite_compiler.limits import DEFAULT, Limits

MUTANTS, MODELS, LIMITS = 150, 2, 1


def told(finding: str | Finding, seed: int) -> str:
    """Return an outcome, or fail with the finding and its seed."""
    assert not isinstance(finding, Finding), f"seed {seed}: {finding.what}"
    return finding


def test_generated_models_are_valid_and_imported_as_they_are(tmp_path: Path) -> None:
    for seed in seeds(1000, 40):
        made = valid_model(seed)
        onnx.checker.check_model(made, full_check=True)
        (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
        assert told(imported(tmp_path / "m.onnx"), seed) == EQUAL


def test_mutants_are_refused_or_mean_what_the_host_computes(tmp_path: Path) -> None:
    path, outcomes = tmp_path / "m.onnx", []
    for seed in seeds(0, MUTANTS):
        source = valid_model(seed % 30)
        path.write_bytes(
            byte_mutant(source.SerializeToString(), seed) if seed % 4 == 0 else structural_mutant(source, seed).SerializeToString()
        )
        outcomes.append(told(imported(path), seed))
    assert set(outcomes) <= {EQUAL, REFUSED, HOST_REFUSES}
    assert outcomes.count(REFUSED) > MUTANTS // 4
    assert outcomes.count(EQUAL) > MUTANTS // 20


def test_plans_of_random_models_compute_what_the_models_compute(tmp_path: Path) -> None:
    for seed in seeds(2000, MODELS):
        (tmp_path / "m.onnx").write_bytes(valid_model(seed).SerializeToString())
        assert told(compiled(tmp_path / "m.onnx"), seed) == EQUAL


def test_limits_never_cost_the_plan(tmp_path: Path) -> None:
    for seed in seeds(3000, LIMITS):
        rng = random.Random(seed)
        limits = replace(DEFAULT, e_nodes=rng.choice((1, 20, 100)), rounds=rng.randint(1, 3), saturation_seconds=rng.choice((1, 60)))
        (tmp_path / "m.onnx").write_bytes(valid_model(seed).SerializeToString())
        assert told(compiled(tmp_path / "m.onnx", limits=limits), seed) == EQUAL


@pytest.mark.parametrize("limits", [replace(DEFAULT, saturation_bytes=1 << 24)], ids=["memory"])
def test_a_limit_before_the_first_round_costs_matching_not_the_plan(limits: Limits, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(joined([valid_model(s, 40) for s in seeds(4000, 20)]).SerializeToString())
    plan = compile_model(path, ["flexasr"], Options(limits=limits))
    assert (plan.offloads, plan.egraph["stop"]["reason"]) == ((), "memory")
    assert "before its first round" in plan.limited[0]
    assert check_plan(plan, plan_onnx(plan), path).against == "model"


def test_random_models_together(tmp_path: Path) -> None:
    assert judged(range(5000, 5020), tmp_path / "m.onnx", ["flexasr", "hlscnn"], second=True) == {}


@pytest.mark.parametrize(("operator", "kind"), [("Min", onnx.TensorProto.INT16), ("MatMul", onnx.TensorProto.BFLOAT16)])
def test_a_valid_model_that_the_host_refuses_is_no_finding(operator: str, kind: int, tmp_path: Path) -> None:
    """Of these types onnxruntime has no such operator, in any version so far; pads as wide as a pool's window it takes since 1.32."""
    node = onnx.helper.make_node(operator, ["x", "x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, kind, [3, 3]) for name in "xy")
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "refused.onnx")
    assert compiled_in_process(tmp_path / "refused.onnx", ["flexasr"]) == HOST_REFUSES


@pytest.mark.parametrize(("model", "seed", "commands"), [("flexasr", 50, 240), ("hlscnn ext16", 2, 200), ("vta hls", 9, 60)])
def test_random_commands_do_the_same_in_every_reading(model: str, seed: int, commands: int) -> None:
    told = run_stream(Bench(model, DEVICES[model]()), seed, commands)
    assert (told.commands, told.difference) == (commands, "")
    assert told.triggers


def test_surroundings_change_no_byte(tmp_path: Path) -> None:
    onnx.save(perceptron((16, 8, 4)), tmp_path / "app.onnx")
    plans = []
    for seed, locale, zone in (("0", "C", "UTC"), ("77", "tr_TR.UTF-8", "Asia/Kathmandu")):
        environment = {
            "PYTHONHASHSEED": seed,
            "LC_ALL": locale,
            "TZ": zone,
            "HOME": "/nonexistent",
        }
        run = process("app.onnx", "--accel", "flexasr", "-q", "-o", "plan", cwd=tmp_path, env=environment)
        assert (run.returncode, run.stderr) == (0, b"")
        document = json.loads((tmp_path / "plan.json").read_bytes())
        plans.append(({k: v for k, v in document.items() if k != "run"}, (tmp_path / "plan.onnx").read_bytes()))
    assert plans[0] == plans[1]
