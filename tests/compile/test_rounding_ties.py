"""A mean of codes between two codes may become either; another rounding of ties, and a code beside a tie, are differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from rewrite_compiler.compile import compile_model, verify
from rewrite_compiler.compile.rounding_ties import undecided_by_ties
from rewrite_compiler.compile.verify import PlanDiffers, check_plan
from rewrite_compiler.frontend.perturb.rounding_noise import with_rounding_noise
from rewrite_compiler.hostrun import Session

GENERIC, EXACT = 0.02820406, 2.0**-5  # sums of codes times the first one are rounded, of the second one they are not
MEAN = "m = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(d)"
IN_ANOTHER_ORDER = """s1 = Slice(d, zero, many, two, pace)
    s2 = Slice(d, one, many, two, pace)
    s3 = Slice(s1, zero, many, three, pace)
    s4 = Slice(s2, one, many, three, pace)
    s5 = Slice(s1, one, many, three, pace)
    s6 = Slice(s2, zero, many, three, pace)
    a1 = Add(s4, s6)
    a2 = Add(a1, s5)
    a3 = Add(a2, s3)
    m = Mul(a3, quarter)"""
HALF_EVEN = "r = QuantizeLinear(m, s, z)"
HALF_UP = """h1 = Div(m, s)
    h2 = Add(h1, half)
    h3 = Floor(h2)
    h4 = Clip(h3, low, high)
    r = Cast<to = 3>(h4)"""
UNCHANGED = "y = DequantizeLinear(r, s, z)"
ONE_CODE_MORE = "o = DequantizeLinear(r, s, z) y = Add(o, error)"


def network(scale: float, mean: str = MEAN, rounding: str = HALF_EVEN, end: str = UNCHANGED, error: tuple[int, ...] = ()) -> bytes:
    """Return a mean of codes that is quantised again, with `error` at an element."""
    wrong = np.zeros((1, 8, 8, 8), np.float32)
    if error:
        wrong[error] = scale
    numbers = {
        "s": np.float32(scale), "z": np.int8(0), "zero": np.int64([0]), "one": np.int64([1]), "two": np.int64([2]), "three": np.int64([3]),
        "many": np.int64([16]), "pace": np.int64([2]), "quarter": np.float32(0.25), "half": np.float32(0.5), "low": np.float32(-128),
        "high": np.float32(127), "error": wrong,
    }  # fmt: skip
    text = f"""<ir_version: 10, opset_import: ["": 21]> net (float[1, 8, 16, 16] x) => (float[1, 8, 8, 8] y) {{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    {mean}
    {rounding}
    {end}
    }}"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(x), name) for name, x in numbers.items() if name in text)
    return bytes(proto.SerializeToString())


def check(scale: float, tmp_path: Path, **other: str | tuple[int, ...]) -> float | None:
    """Check a changed network as the plan of the plain one."""
    model = tmp_path / "m.onnx"
    model.write_bytes(network(scale))
    return check_plan(compile_model(model, ["vta"]), network(scale, **other), model).relative_difference  # type: ignore[arg-type]


def test_a_mean_between_two_codes_may_become_either(tmp_path: Path) -> None:
    one_code = check(GENERIC, tmp_path, mean=IN_ANOTHER_ORDER)
    assert one_code
    assert 0.005 < one_code < 0.05


@pytest.mark.parametrize(
    ("scale", "other", "cause"),
    [(GENERIC, {"mean": IN_ANOTHER_ORDER}, verify.TIES), (EXACT, {"rounding": HALF_UP}, verify.FUSED)],
    ids=["ties", "rounding"],
)
def test_the_deviation_of_the_host_has_its_true_cause(
    scale: float, other: dict[str, str], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its own settings take the other of two codes it is that, not sums that saturate."""
    (model := tmp_path / "m.onnx").write_bytes(network(scale))
    plan, exact = compile_model(model, ["vta"]), verify._reference
    monkeypatch.setattr(verify, "_reference", lambda m, **o: exact(m, **o) if o.get("is_exact", True) else Session(network(scale, **other)))
    monkeypatch.setattr(verify, "saturates", lambda: cause != verify.FUSED)
    assert check_plan(plan, network(scale), model).defaults.endswith(f"(DequantizeLinear, QuantizeLinear): {cause}")


def test_exact_sums_have_one_answer(tmp_path: Path) -> None:
    assert check(EXACT, tmp_path, mean=IN_ANOTHER_ORDER) == 0


def test_ties_that_are_rounded_up_are_a_difference(tmp_path: Path) -> None:
    with pytest.raises(PlanDiffers, match="the plan differs from its model by"):
        check(EXACT, tmp_path, rounding=HALF_UP)


def test_a_code_beside_a_tie_is_a_difference(tmp_path: Path) -> None:
    """One element of 512, in an output whose ties move by as much; the wrong element is no tie."""
    noisy = Session(with_rounding_noise(network(GENERIC), 2.0**-21) or b"")
    x = np.random.default_rng(20261).standard_normal((1, 8, 16, 16)).astype(np.float32)
    first, *others = (noisy.run({"x": x})["y"] for _ in range(12))
    moved = np.any([first != other for other in others], axis=0)
    assert 10 < np.count_nonzero(moved) < 256
    firm = next(zip(*np.nonzero(~moved), strict=True))
    with pytest.raises(PlanDiffers, match="the plan differs from its model by"):
        check(GENERIC, tmp_path, mean=IN_ANOTHER_ORDER, end=ONE_CODE_MORE, error=tuple(map(int, firm)))


@pytest.mark.parametrize("actual", [[1.0, np.nan], [1.0], [1.0, 4.0]])
def test_what_no_run_gives_is_not_decided_by_ties(actual: list[float]) -> None:
    runs = iter([[1.0, 2.0], [1.0, 3.0]] * 32)
    expected = {"y": np.float32([1, 2])}
    found = undecided_by_ties(["y"], expected, {"y": np.float32(actual)}, lambda _: {"y": np.float32(next(runs))}, {}, 1e-5)
    assert found == ["y"]


def test_a_model_without_quantisation_has_no_noise() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> net (float[2] x) => (float[2] y) { y = Relu(x) }"""
    assert with_rounding_noise(onnx.parser.parse_model(text).SerializeToString(), 2.0**-21) is None
