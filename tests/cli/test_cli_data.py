"""Data that do not fit, calibration that cannot be, options of a simulation without meaning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import flexmatch, process, refused

SAYS = "\n  help: correct the data as the sentence says"
NOT_ARCHIVE = "error[C100]: the file is not an .npz archive\n  help: write it with numpy.savez"
EMPTY = "the folder must have .npz files, .npy files or folders test_data_set_0, …, and has none"
ACCESS = "check its permissions; only regular files are read and written"
Arrays = dict[str, Any]


def spoilt(x: Any, where: int, value: float) -> Any:
    x = x.copy()
    x[where, 3] = value
    return x


BAD: dict[str, tuple[Callable[[Any, Any], Arrays], str]] = {
    "other name": (
        lambda x, labels: {"image": x, "labels": labels},
        'error[C100]: there is no array for the input "x"\n'
        '  help: it has "image", "labels"; name arrays as the model\'s inputs, or describe the data in a .toml',
    ),
    "other shape": (
        lambda x, labels: {"x": x[:, :9], "labels": labels},
        'error[C100]: array "x" for the input "x" must have shape [samples, 1, 16] or [samples, 16], not [48, 9]\n'
        '  help: a .toml beside the data can say how axes are ordered: layout = "NHWC->NCHW"',
    ),
    "complex numbers": (
        lambda x, labels: {"x": x.astype(np.complex64), "labels": labels},
        f'error[C100]: array "x" must hold numbers, not complex64{SAYS}',
    ),
    "not a number": (
        lambda x, labels: {"x": spoilt(x, 40, np.nan), "labels": labels},
        'error[C102]: the input "x" must be finite, not so in 1 of 48 samples, first in sample 40\n  help: remove NaN and infinity',
    ),
    "infinity": (
        lambda x, labels: {"x": spoilt(x, 0, -np.inf), "labels": labels},
        'error[C102]: the input "x" must be finite, not so in 1 of 48 samples, first in sample 0\n  help: remove NaN and infinity',
    ),
    "fewer labels": (
        lambda x, labels: {"x": x, "labels": labels[:9]},
        f'error[C100]: all arrays must have the same number of samples, not 48 for the input "x" and 9 for labels{SAYS}',
    ),
    "labels that are no classes": (
        lambda x, labels: {"x": x, "labels": labels * 1.5},
        f"error[C100]: labels must be one class number from 0 for each sample, not float64[48]{SAYS}",
    ),
    "labels beyond all numbers": (
        lambda x, labels: {"x": x, "labels": labels.astype(np.uint64) + np.uint64(1 << 63)},
        f"error[C100]: labels must be one class number from 0 for each sample, not uint64[48] with 9223372036854775808{SAYS}",
    ),
    "labels beyond the classes": (
        lambda x, labels: {"x": x, "labels": labels * 0 + 4},
        f"sample 0: error[C100]: labels must be below the 4 classes of the model, not 4{SAYS}",
    ),
    "one label beyond the classes": (
        lambda x, labels: {"x": x, "labels": np.where(np.arange(48) == 41, 7, labels)},
        f"sample 41: error[C100]: labels must be below the 4 classes of the model, not 7{SAYS}",
    ),
    "a label below zero": (
        lambda x, labels: {"x": x, "labels": np.where(np.arange(48) == 17, -1, labels)},
        f"error[C100]: labels must be one class number from 0 for each sample, not int64[48] with -1 in sample 17{SAYS}",
    ),
    "no samples": (
        lambda x, labels: {"x": x[:0], "labels": labels[:0]},
        f"error[C100]: data must have at least one sample, not 0{SAYS}",
    ),
    "objects": (
        lambda x, labels: {"x": np.array([{1: 2}], dtype=object)},
        'error[C101]: array "x" holds pickled objects, which are never loaded\n'
        "  help: save plain arrays with numpy.savez, without objects, within the limit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_data_that_do_not_fit(name: str, folder: Path) -> None:
    make, said = BAD[name]
    with np.load("test.npz") as good:
        np.savez("bad.npz", **make(good["x"], good["labels"]))
    refused(flexmatch("cosim", "ready.json", "--data", "bad.npz"), 3, f"bad.npz: {said}")
    if "labels" in name:
        return  # calibration reads no labels
    refused(flexmatch("app.onnx", "--accel", "flexasr", "-o", "plan", "--calibrate", "bad.npz"), 3, f"bad.npz: {said}")
    refused(flexmatch("cosim", "app.flexasr.json", "--data", "test.npz", "--calibrate", "bad.npz"), 3, f"bad.npz: {said}")


FILES: dict[str, tuple[bytes | None, int, str]] = {
    "none.npz": (None, 2, "error[F101]: there is no such file or folder\n  help: check the path"),
    "empty.npz": (b"", 3, NOT_ARCHIVE),
    "junk.npz": (b"PK\x03\x04junk", 3, NOT_ARCHIVE),
    "bad.toml": (b"[[[", 3, f"error[C100]: the file is not TOML: Invalid initial character for a key part (at line 1, column 3){SAYS}"),
    "deep.toml": (b"a=" + b"[" * 5000, 3, f"error[C100]: the file is not TOML: it is nested too deeply{SAYS}"),
    "a" * 300 + ".npz": (None, 2, f"error[F100]: the file cannot be used: file name too long\n  help: {ACCESS}"),
    "empty.toml": (b"", 3, 'error[C100]: the description must say where the inputs come from\n  help: add a table [inputs."NAME"]'),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_hold_no_data(name: str, folder: Path) -> None:
    data, code, said = FILES[name]
    if data is not None:
        Path(name).write_bytes(data)
    refused(flexmatch("cosim", "ready.json", "--data", name), code, f"{name}: {said}")


def test_an_empty_folder_of_data(folder: Path) -> None:
    Path("samples").mkdir()
    refused(flexmatch("cosim", "ready.json", "--data", "samples"), 3, f"samples: error[C100]: {EMPTY}{SAYS}")


def test_a_plan_without_formats_needs_samples_for_them(folder: Path) -> None:
    with np.load("test.npz") as good:
        np.savez("few.npz", x=good["x"][:32], labels=good["labels"][:32])
    sentence = "data must have more than 32 samples when the first 32 are for calibration, not 32"
    remedy = "give more samples, or --calibrate FILE"
    refused(flexmatch("cosim", "app.flexasr.json", "--data", "few.npz"), 3, f"few.npz: error[C100]: {sentence}\n  help: {remedy}")
    answer = flexmatch("cosim", "app.flexasr.json", "--data", "few.npz", "--calibrate", "calibration.npz", "-q")
    assert (answer.code, answer.err) == (0, "")


PURPOSES = {
    "--samples": "use N evenly spaced samples",
    "--batch": "samples at once (default: as many as the largest tensor allows, up to 32)",
    "--threads": "batches simulated side by side (default: one a core)",
}
OPTIONS = {
    "--samples": ("0", "-1", "x", "1e3", "1.5", ""),
    "--batch": ("0", "-2", "many"),
    "--threads": ("0", "-1"),
}


@pytest.mark.parametrize(("option", "value"), [(o, v) for o, values in OPTIONS.items() for v in values])
def test_numbers_of_a_simulation_are_positive(option: str, value: str, folder: Path) -> None:
    answer = flexmatch("cosim", "ready.json", "--data", "test.npz", f"{option}={value}")
    refused(answer, 2, f'error[F203]: {option} must be a whole number from 1 on, not "{value}"\n  help: {option} N: {PURPOSES[option]}')


def test_more_samples_than_there_are(folder: Path) -> None:
    said = "test.npz: error[F203]: Number of samples must be 1 to 48, not 49\n  help: --samples N: use N evenly spaced samples"
    refused(flexmatch("cosim", "ready.json", "--data", "test.npz", "--samples", "49"), 2, said)
    said = said.replace("48", "16").replace("49", "17")  # 32 of 48 are for calibration
    refused(flexmatch("cosim", "app.flexasr.json", "--data", "test.npz", "--samples", "17"), 2, said)


def test_metrics_that_do_not_exist_or_do_not_apply(folder: Path) -> None:
    command = ("cosim", "ready.json", "--data", "test.npz", "--metric")
    known = "top1, top5, f1, perplexity, token-error-rate, ctc-error-rate, ctc-error-rate-blank-last, pixel-accuracy, mean-iou, "
    known += "multilabel-f1, auc, "
    known += "mse, rmse, mae, r2, psnr, cosine, max-relative-error, or MODULE:FUNCTION"
    said = f'error[F203]: there is no metric called "bogus"\n  help: known: {known}'
    refused(flexmatch(*command, "bogus"), 2, said)
    said = f"test.npz: error[C100]: metric perplexity needs targets, which the data does not have{SAYS}"
    refused(flexmatch(*command, "perplexity"), 3, said)


def test_data_are_needed_and_tiers_are_known(folder: Path) -> None:
    said = "error[F203]: --data is missing\n  help: --data FILE: samples: .npz, a folder of them, or a .toml that describes them"
    refused(flexmatch("cosim", "ready.json"), 2, said)
    said = (
        'error[F203]: --tier must be one of auto, native, arrays, oracle, not "fast"'
        "\n  help: --tier auto|native|arrays|oracle: how simulators "
        "compute (default auto: native from three batches or many commands on, else arrays); answers are the same"
    )
    refused(flexmatch("cosim", "ready.json", "--data", "test.npz", "--tier", "fast"), 2, said)


def test_a_process_answers_in_the_same_way(folder: Path) -> None:
    for arguments, said in (
        (("none.onnx", "--accel", "flexasr"), "none.onnx: error[F101]: there is no such file"),
        (("cosim", "ready.json", "--data", "none.npz"), "none.npz: error[F101]: there is no such file or folder"),
    ):
        run = process(*arguments)
        assert (run.returncode, run.stdout, run.stderr.decode()) == (2, b"", f"{said}\n  help: check the path\n")


DESCRIBED = {
    "a misspelt key": ('[inputs.x]\nfil = "test.npz"\narray = "x"\n', 2, 'inputs."x" has no key "fil"', 'did you mean "file"?'),
    "a file that is not there": (
        '[inputs.x]\nfile = "tset.npz"\narray = "x"\n', 2, 'inputs."x".file must be an .npz archive, and there is no file "tset.npz"',
        'did you mean "test.npz"?',
    ),
    "a misspelt array": (
        '[inputs.x]\nfile = "test.npz"\narray = "x"\n[labels]\nfile = "test.npz"\narray = "label"\n', 6, 'test.npz has no array "label"',
        'did you mean "labels"?',
    ),
    "a misspelt table": ('[input.x]\nfile = "test.npz"\n', 1, 'the description has no key "input"', 'did you mean "inputs"?'),
    "a number in quotes": (
        '[inputs.x]\nfile = "test.npz"\narray = "x"\nscale = "1/255"\n', 4, "inputs.\"x\".scale must be a finite number, not '1/255'",
        "write it without quotes and as one number: 1/255 is 0.00392157",
    ),
    "a key of images": (
        '[inputs.x]\nfile = "test.npz"\narray = "x"\nresize = 224\n', 4, 'inputs."x" comes from a file and cannot have resize',
        "resize belongs to folder = …",
    ),
    "another array": (
        '[inputs.x]\nfile = "test.npz"\narray = "labels"\n', 3,
        'array "labels" for the input "x" must have shape [samples, 1, 16] or [samples, 16], not [48]',
        'layout = "NHWC->NCHW" here would say how its axes are ordered; or name another array',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_mistakes_in_a_description_of_data(name: str, folder: Path) -> None:
    text, line, sentence, remedy = DESCRIBED[name]
    Path("mine.toml").write_text(text, "utf-8")
    for command in (("cosim", "ready.json", "--data", "mine.toml"), ("app.onnx", "--accel", "flexasr", "--calibrate", "mine.toml")):
        refused(flexmatch(*command), 3, f"mine.toml:{line}: error[C100]: {sentence}\n  help: {remedy}")
