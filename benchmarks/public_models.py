"""Do models of public collections and tools compile on each accelerator, with the numbers that onnxruntime gives?

The light models of the onnx package, the graphs of the shared folder, small networks in the ways of onnxruntime's quantiser, and,
where skl2onnx is installed (`pip install skl2onnx`), pipelines of scikit-learn. What its tool does not write or onnxruntime does not
load is a row without a plan. With `--json FILE` it goes on where it ended; the exit status is 1 when a model that onnxruntime loads
has no plan, or one of other numbers.
"""

from __future__ import annotations

import itertools
import lzma
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from record import ROOT, Row, finish, options, recorded

from rewrite_compiler.compile import Options, compile_model, plan_onnx
from rewrite_compiler.compile.verify import MODEL, check_plan
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.limits import Limits

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models" / "arch"
EXPORTED = ROOT / "tests" / "exported"
TARGETS = ("flexasr", "hlscnn", "vta")
QUANTISED = ("autoencoder.dynamo", "kws1d.torchscript", "mobilenet_v3.dynamo", "residual_keras.tf2onnx", "unet.torchscript")
INT8, UINT8, INT16 = QuantType.QInt8, QuantType.QUInt8, QuantType.QInt16
UNHURRIED = Options(limits=Limits(saturation_seconds=1800, extraction_seconds=1800))  # by the clock, whatever runs beside it
Model = tuple[str, Callable[[Path], object]]  # its name, and what writes its file


def light() -> Iterator[Model]:
    """Yield the light models of the onnx package: their shapes are real, their weights made up."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for path in sorted(folder.glob("*.onnx")):
        yield path.stem, lambda out, path=path: out.write_bytes(path.read_bytes())  # type: ignore[misc]


def shared() -> Iterator[Model]:
    """Yield the public graphs of the shared folder."""
    for path in sorted(SHARED.glob("*.onnx.xz")):
        yield path.name.removesuffix(".onnx.xz"), lambda out, path=path: out.write_bytes(lzma.decompress(path.read_bytes()))  # type: ignore[misc]


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Random samples of the inputs of a model."""

    def __init__(self, path: Path) -> None:
        random = np.random.default_rng(0)
        inputs = onnxruntime.InferenceSession(str(path)).get_inputs()
        shapes = {i.name: [n if isinstance(n, int) else 1 for n in i.shape] for i in inputs}
        self.left = [{name: random.standard_normal(s).astype(np.float32) for name, s in shapes.items()} for _ in range(4)]

    def get_next(self) -> Any:
        """Return the inputs of the next sample, None after the last."""
        return self.left.pop() if self.left else None


def ways() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield settings of the static quantiser by their names."""
    for form, (a, w), by_channel in itertools.product(QuantFormat, ((INT8, INT8), (UINT8, INT8), (UINT8, UINT8)), (False, True)):
        name = f"{form.name} {a.name[1:]} {w.name[1:]}{' by channel' if by_channel else ''}"
        yield name, {"quant_format": form, "activation_type": a, "weight_type": w, "per_channel": by_channel}
    yield "QDQ reduced range", {"reduce_range": True}
    yield "QOperator reduced range by channel", {"quant_format": QuantFormat.QOperator, "reduce_range": True, "per_channel": True}
    yield "QDQ int16 activations", {"activation_type": INT16, "weight_type": INT8}
    yield "QDQ entropy", {"calibrate_method": CalibrationMethod.Entropy}
    yield "QDQ percentile", {"calibrate_method": CalibrationMethod.Percentile}
    yield "QDQ symmetric", {"activation_type": INT8, "extra_options": {"ActivationSymmetric": True}}
    yield "QDQ asymmetric weights", {"extra_options": {"WeightSymmetric": False}}
    yield "QDQ weights in pairs", {"extra_options": {"AddQDQPairToWeight": True}}
    yield "QDQ dedicated pairs", {"extra_options": {"DedicatedQDQPair": True}}
    yield "QDQ float bias", {"extra_options": {"QuantizeBias": False}}
    yield "QDQ forced", {"extra_options": {"ForceQuantizeNoInputCheck": True}}
    yield "QDQ products only", {"op_types_to_quantize": ["Conv", "Gemm", "MatMul"]}


def quantised() -> Iterator[Model]:
    """Yield small networks in each way of onnxruntime's quantiser."""

    def prepared(name: str, out: Path) -> Path:
        given, ready = out.with_suffix(".float.onnx"), out.with_suffix(".prepared.onnx")
        given.write_bytes(lzma.decompress((EXPORTED / f"{name}.onnx.xz").read_bytes()))
        quant_pre_process(str(given), str(ready), skip_symbolic_shape=True)
        return ready

    def write(out: Path, name: str, how: dict[str, Any]) -> None:
        ready = prepared(name, out)
        quantize_static(str(ready), str(out), Samples(ready), **how)

    def write_dynamic(out: Path, name: str, codes: QuantType) -> None:
        ready = onnx.load(prepared(name, out))
        del ready.graph.value_info[:]  # it infers these itself, and refuses those of a Gemm that it has written as MatMul
        quantize_dynamic(ready, str(out), weight_type=codes)

    for name in QUANTISED:
        for way, how in ways():
            yield f"{name}, {way}", lambda out, name=name, how=how: write(out, name, how)  # type: ignore[misc]
        for codes in (INT8, UINT8):
            yield f"{name}, dynamic {codes.name[1:]}", lambda out, name=name, codes=codes: write_dynamic(out, name, codes)  # type: ignore[misc]


def pipelines() -> Iterator[Model]:
    """Yield pipelines of scikit-learn as skl2onnx writes them, none without it."""
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError:
        print("skl2onnx cannot be imported: no pipelines")
        return
    from sklearn import datasets, ensemble, linear_model, naive_bayes, neighbors, neural_network, pipeline, preprocessing, svm, tree
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, y = datasets.load_iris(return_X_y=True)
    x, scaler = x.astype(np.float32), preprocessing.StandardScaler
    steps: dict[str, tuple[Any, ...]] = {
        "logistic regression": (linear_model.LogisticRegression(),),
        "scaled logistic regression": (scaler(), linear_model.LogisticRegression()),
        "principal components, logistic regression": (PCA(3), linear_model.LogisticRegression()),
        "ridge": (linear_model.Ridge(),),
        "lasso": (preprocessing.MinMaxScaler(), linear_model.Lasso(0.01)),
        "polynomial features, linear regression": (preprocessing.PolynomialFeatures(2), linear_model.LinearRegression()),
        "stochastic gradient": (linear_model.SGDClassifier(random_state=0),),
        "perceptron": (scaler(), neural_network.MLPClassifier(hidden_layer_sizes=(16,), max_iter=60, random_state=0)),
        "perceptron for regression": (scaler(), neural_network.MLPRegressor(hidden_layer_sizes=(16,), max_iter=60, random_state=0)),
        "linear support vectors": (svm.LinearSVC(),),
        "radial support vectors": (scaler(), svm.SVC(probability=False)),
        "polynomial support vectors": (svm.SVC(kernel="poly"),),
        "support vectors for regression": (svm.SVR(),),
        "decision tree": (tree.DecisionTreeClassifier(random_state=0),),
        "random forest": (ensemble.RandomForestClassifier(10, random_state=0),),
        "gradient boosting": (ensemble.GradientBoostingRegressor(n_estimators=10, random_state=0),),
        "bayes": (naive_bayes.GaussianNB(),),
        "neighbours": (neighbors.KNeighborsClassifier(3),),
        "k means": (scaler(), KMeans(3, n_init=2, random_state=0)),
        "discriminant analysis": (preprocessing.Normalizer(), LinearDiscriminantAnalysis()),
        "binarised bayes": (preprocessing.Binarizer(threshold=2.0), naive_bayes.BernoulliNB()),
    }

    def write(out: Path, stages: tuple[Any, ...]) -> None:
        fitted = (pipeline.make_pipeline(*stages) if len(stages) > 1 else stages[0]).fit(x, y)
        kinds = [("x", FloatTensorType([None, x.shape[1]]))]
        out.write_bytes(convert_sklearn(fitted, initial_types=kinds, target_opset=18).SerializeToString())

    for name, stages in steps.items():
        yield name, lambda out, stages=stages: write(out, stages)  # type: ignore[misc]


GROUPS: dict[str, tuple[Callable[[], Iterator[Model]], tuple[str, ...]]] = {
    "light": (light, TARGETS),
    "shared": (shared, TARGETS),
    "quantised": (quantised, ("flexasr", "vta")),
    "scikit-learn": (pipelines, TARGETS),
}


def refusal(write: Callable[[Path], object], path: Path) -> str:
    """Write a model; return why its tool does not write it or onnxruntime does not load it, empty where they do."""
    try:
        write(path)
        onnxruntime.InferenceSession(str(path))
    except Exception as error:  # both raise errors of many types
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def measured(path: Path, target: str) -> Row:
    """Compile a model and compare its plan with the model."""
    started = time.process_time()
    try:
        plan = compile_model(path, [target], UNHURRIED)
        check = check_plan(plan, plan_onnx(plan), path)
    except FlexmatchError as error:
        return {"refused": f"{error.problem.code}: {error.problem.sentence}"}
    return {
        "offloads": plan.counts[target], "against": check.against, "relative_difference": check.relative_difference,
        "status": "limited" if plan.limited else plan.extraction["status"], "defaults": check.defaults,
        "cpu_seconds": round(time.process_time() - started, 2),
    }  # fmt: skip


def has_its_plan(row: Row) -> bool:
    """Tell whether a plan has the numbers of its model, or there is no model that onnxruntime loads."""
    return "no_model" in row or row.get("against") == MODEL


def shown(row: Row) -> str:
    """Return a row as a line."""
    said = row.get("no_model") or row.get("refused") or f"{row['offloads']}, {row['relative_difference']} from the {row['against']}"
    return f"{row['group']}: {row['name']} on {row['target']}: {said}"


def main() -> int:
    """Print a line a model and accelerator, write the record; 1 when a model that onnxruntime runs has no plan of its numbers."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--only", choices=GROUPS, help="models of this group")
    args = parser.parse_args()
    rows = recorded(args.json)
    known = {(r["group"], r["name"], r["target"]) for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        for group, (models, targets) in ((name, of) for name, of in GROUPS.items() if args.only in (None, name)):
            for name, write in models():
                wanted = [t for t in targets if (group, name, t) not in known]
                path = Path(folder) / "model.onnx"
                without_model = refusal(write, path) if wanted else ""
                for target in wanted:
                    row = {"no_model": without_model} if without_model else measured(path, target)
                    rows.append({"group": group, "name": name, "target": target, **row})
                    print(shown(rows[-1]), flush=True)
                    finish("public_models", rows, args.json)
    return int(not all(map(has_its_plan, rows)))


if __name__ == "__main__":
    sys.exit(main())
