"""Data sets: what is accepted, how it is prepared, and that hostile or mistaken files end in one sentence."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.data import load_data
from rewrite_compiler.data.column import Preparation, parse_layout
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT

EMPTY = "the folder must have .npz files, .npy files or folders test_data_set_0, …, and has none"
IMAGE = {"x": TensorType((1, 3, 4, 5))}
TOKENS = {"tokens": TensorType((6, 1), "int64"), "h": TensorType((1, 1, 2))}


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def refusal(make: Callable[[], Any]) -> str:
    with pytest.raises(FlexmatchError) as caught:
        make()
    return str(caught.value)


def pixels(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# -- .npz


@pytest.mark.parametrize("shape", [(7, 1, 3, 4, 5), (7, 3, 4, 5)])
def test_samples_come_with_or_without_the_batch_axis(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = pixels(*shape)
    file = save(tmp_path / "d.npz", x=x, labels=np.arange(7, dtype=np.uint8))
    data = load_data(file, IMAGE)
    assert (data.count, data.task) == (7, "classification")
    assert np.array_equal(data.inputs["x"], x.reshape(7, 1, 3, 4, 5))
    assert data.labels is not None
    assert (data.labels.dtype, data.labels.tolist()) == (np.int64, list(range(7)))
    assert data.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert data.columns["x"].sample_axis == (None if len(shape) == 5 else 0)


def test_integers_widen_and_zero_states_may_be_absent(tmp_path: Path) -> None:
    tokens, targets = np.arange(12, dtype=np.int32).reshape(2, 6), np.ones((2, 6), np.int32)
    file = save(tmp_path / "d.npz", tokens=tokens, targets=targets)
    data = load_data(file, TOKENS, zeros=["h"])
    assert data.task == "language model"
    assert data.inputs["tokens"].dtype == np.int64
    assert data.inputs["tokens"][1, :, 0].tolist() == [6, 7, 8, 9, 10, 11]
    assert data.inputs["h"].shape == (2, 1, 1, 2)
    assert not data.inputs["h"].any()
    assert data.columns["tokens"].sample_axis == 1
    assert refusal(lambda: load_data(file, TOKENS)) == (
        f'{file}: error[C100]: there is no array for the input "h"\n'
        '  help: it has "tokens", "targets"; name arrays as the model\'s inputs, or describe the data in a .toml'
    )


def test_samples_are_taken_evenly_split_and_batched(tmp_path: Path) -> None:
    data = load_data(save(tmp_path / "d.npz", x=pixels(70, 1), labels=np.arange(70)), {"x": TensorType((1,))})

    def taken(d: Any) -> list[int]:
        assert d.inputs["x"][:, 0].tolist() == d.labels.tolist()
        assert d.count == len(d.labels)
        return list(d.labels)

    assert taken(data.evenly(4)) == [0, 23, 46, 69]
    assert taken(data.evenly(1)) == [0]
    first, others = data.split()
    assert (taken(first), taken(others)) == (list(range(32)), list(range(32, 70)))
    assert [taken(b) for b in others.evenly(5).batches(2)] == [[32, 41], [50, 59], [69]]
    assert refusal(lambda: data.evenly(71)) == f"{data.place}: error[F203]: Number of samples must be 1 to 70, not 71"
    assert refusal(lambda: first.split()) == (
        f"{data.place}: error[C100]: data must have more than 32 samples when the first 32 are for calibration, not 32\n"
        "  help: give more samples, or --calibrate FILE"
    )


def test_a_folder_joins_its_files_by_name(tmp_path: Path) -> None:
    for name, start in (("b", 2), ("a", 0)):
        save(tmp_path / f"{name}.npz", x=pixels(2, 1) + start, labels=[start, start + 1])
    data = load_data(tmp_path, {"x": TensorType((1,))})
    assert data.inputs["x"][:, 0].tolist() == [0, 1, 2, 3]
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 2, 3]
    save(tmp_path / "c.npz", x=pixels(2, 1))
    assert refusal(lambda: load_data(tmp_path, {"x": TensorType((1,))})) == (
        f"{tmp_path / 'c.npz'}: error[C100]: all files must agree on labels: int64[samples] in a.npz, not none"
    )
    save(tmp_path / "c.npz", x=pixels(2), labels=[0, 0])
    assert refusal(lambda: load_data(tmp_path, {"x": TensorType((1,))})) == (
        f'{tmp_path / "c.npz"}: error[C100]: all files must agree on the input "x": float32[samples, 1] in a.npz, not float32[samples]'
    )


def test_values_that_are_not_finite_are_a_warning(tmp_path: Path) -> None:
    x = pixels(2, 3)
    x[1, 0] = np.nan
    data = load_data(save(tmp_path / "d.npz", x=x), {"x": TensorType((3,))})
    (warning,) = data.warnings
    assert (warning.code, warning.sentence) == ("C102", 'the input "x" has 1 values that are not finite, the first at [1, 0]')


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (
        {"x": pixels(2, 4, 5, 3)},
        'array "x" for the input "x" must have shape [samples, 1, 3, 4, 5] or [samples, 3, 4, 5], not [2, 4, 5, 3]',
    ),
    ({"x": np.zeros((2, 3, 4, 5))}, 'array "x" for the input "x" must be float32, not float64'),
    ({"x": np.zeros((2, 3, 4, 5), np.uint8)}, 'array "x" for the input "x" must be float32, not uint8'),
    ({"x": np.float32(1)}, 'array "x" for the input "x" must have a first axis for the samples'),
    ({"x": pixels(0, 3, 4, 5)}, "data must have at least one sample, not 0"),
    ({"x": pixels(2, 3, 4, 5), "labels": [1]}, 'all arrays must have the same number of samples, not 2 for the input "x" and 1 for labels'),
    (
        {"x": pixels(2, 3, 4, 5), "labels": [1, -1]},
        "labels must be one class number from 0 for each sample, not int64[2] with -1 in sample 1",
    ),
    ({"x": pixels(2, 3, 4, 5), "labels": [0.5, 1]}, "labels must be one class number from 0 for each sample, not float64[2]"),
    ({"x": np.array([{}, 1])}, 'array "x" holds pickled objects, which are never loaded'),
    ({"x": np.array(["a", "b"])}, 'array "x" must hold numbers, not <U1'),
]


@pytest.mark.parametrize(("arrays", "sentence"), MISTAKES)
def test_mistakes_are_named(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    file = save(tmp_path / "d.npz", **arrays)
    code = "C101" if "pickled" in sentence else "C100"
    assert refusal(lambda: load_data(file, IMAGE)).splitlines()[0] == f"{file}: error[{code}]: {sentence}"


def test_element_types_that_data_cannot_give(tmp_path: Path) -> None:
    file = save(tmp_path / "d.npz", x=pixels(1, 1))
    assert refusal(lambda: load_data(file, {"x": TensorType((1,), "bfloat16")})) == (
        f'{file}: error[C100]: the input "x" has elements of type bfloat16, which data cannot give'
    )


# -- hostile archives


def member(data: bytes, name: str = "x.npy") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(name, data)
    return out.getvalue()


def header(shape: tuple[int, ...], body: bytes = b"") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return out.getvalue() + body


def written(text: str) -> bytes:
    """Return an array whose header is this text."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


DEEP, CALL = written("(" * 3000), written("{'descr': open('x'), 'fortran_order': False, 'shape': (1,)}")


def packed(method: int) -> bytes:
    """Return an archive whose packed bytes are damaged."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        z.writestr("x.npy", header((64,), bytes(range(256))))
    whole = bytearray(out.getvalue())
    for n in range(45, 125):
        whole[n] ^= 0x5A
    return bytes(whole)


def test_hostile_archives_end_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "d.npz"
    for content, sentence in [
        (b"", "the file is not an .npz archive"),
        (b"\x80\x04pickle", "the file is not an .npz archive"),
        (member(header((1 << 40,))), 'array "x" of shape (1099511627776,) must have 4398046511104 bytes, not 0'),
        (member(header((2,), b"1234")), 'array "x" of shape (2,) must have 8 bytes, not 4'),
        (member(header((1,), b"123456")), 'array "x" of shape (1,) must have 4 bytes, not 6'),
        (member(header((-1, -1), b"1234")), 'array "x" must have no negative extent, not (-1, -1)'),
        (
            member(b"rubbish!"),
            "array \"x\" is not in numpy's format: the magic string is not correct; expected b'\\x93NUMPY', got b'rubbis'",
        ),
        (member(DEEP), 'array "x" is not in numpy\'s format: its header cannot be read'),
        (member(CALL), 'array "x" is not in numpy\'s format: its header cannot be read'),
        (packed(zipfile.ZIP_LZMA), "the .npz archive is damaged: Corrupt input data"),
        (packed(zipfile.ZIP_BZIP2), "the .npz archive is damaged: Invalid data stream"),
        (member(b"", "../x.txt"), 'the .npz archive must hold arrays only, not "../x.txt"'),
    ]:
        file.write_bytes(content)
        assert refusal(lambda: load_data(file, IMAGE)).splitlines()[0] == f"{file}: error[C100]: {sentence}"


def test_an_archive_larger_than_the_limit_is_not_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "d.npz"
    np.savez_compressed(file, x=np.zeros((1 << 16, 60), np.float32))
    limits = DEFAULT.with_overrides(["data_bytes=1000000"])
    assert file.stat().st_size < 100_000
    assert refusal(lambda: load_data(file, IMAGE, limits=limits)) == (
        f"{file}: error[C101]: arrays must take at most 1000000 bytes, not 15728768\n  help: raise --limits data_bytes="
    )


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.data.arrays.RATIO_CHECK_BYTES", 1 << 20)
    file = tmp_path / "d.npz"
    np.savez_compressed(file, x=np.zeros((1 << 13, 60), np.float32))
    with zipfile.ZipFile(file) as archive:
        size = archive.infolist()[0].compress_size
    assert refusal(lambda: load_data(file, IMAGE)) == (
        f'{file}: error[C101]: array "x" must unpack to at most 100 times its packed {size} bytes, not 1966208\n'
        "  help: when the data are right, save them with numpy.savez, which does not pack"
    )


@settings(deadline=None)
@given(st.data())
def test_damaged_archives_never_raise_anything_else(data: st.DataObject) -> None:
    whole = bytearray(member(header((4,), bytes(16))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "d.npz"
        file.write_bytes(bytes(whole[:cut] if data.draw(st.booleans()) else whole))
        with contextlib.suppress(FlexmatchError):
            load_data(file, {"x": TensorType((), "float32")})


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert refusal(lambda: load_data(tmp_path / "no.npz", IMAGE)) == f"{tmp_path / 'no.npz'}: error[F101]: there is no such file or folder"
    assert refusal(lambda: load_data(tmp_path, IMAGE)) == f"{tmp_path}: error[C100]: {EMPTY}"


# -- .toml


def described(folder: Path, text: str, **arrays: Any) -> Path:
    save(folder / "d.npz", **arrays)
    (folder / "d.toml").write_text(text, "utf-8")
    return folder / "d.toml"


def test_preprocessing_is_applied_in_order(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 4, 5, 3), np.uint8)
    text = """
        inputs.x = {file = "d.npz", array = "i", layout = "NHWC->NCHW", zero_point = 3, scale = 0.5, mean = [1, 2, 3], std = [2, 4, 8]}
        labels = {file = "d.npz", array = "y"}"""
    data = load_data(described(tmp_path, text, i=images, y=np.arange(4)), IMAGE)
    wanted = (((images.astype(np.float32) - 3) * np.float32(0.5)) - np.float32([1, 2, 3])) / np.float32([2, 4, 8])
    assert np.array_equal(data.inputs["x"], wanted.transpose(0, 3, 1, 2)[:, None])
    assert np.array_equal(data.evenly(2).inputs["x"], data.inputs["x"][[0, 3]])
    assert data.task == "classification"
    assert data.columns["x"].sample_axis == 0


def test_means_lie_along_the_channels(tmp_path: Path) -> None:
    x = pixels(2, 3, 4, 5)
    text = f'{GOOD}, layout = "NCHW->NHWC", mean = [1, 2, 3]}}'
    data = load_data(described(tmp_path, text, x=x), {"x": TensorType((1, 4, 5, 3))})
    assert np.array_equal(data.inputs["x"][:, 0], x.transpose(0, 2, 3, 1) - np.float32([1, 2, 3]))


def test_layouts_place_the_sample_axis_and_new_axes(tmp_path: Path) -> None:
    text = """
        inputs.tokens = {file = "d.npz", array = "t", layout = "ST->TS"}
        inputs.h = {zeros = true}
        targets = {file = "d.npz", array = "t"}"""
    tokens = np.arange(12, dtype=np.int32).reshape(2, 6)
    data = load_data(described(tmp_path, text, t=tokens), TOKENS)
    assert np.array_equal(data.inputs["tokens"][:, :, 0], tokens)
    assert data.columns["tokens"].sample_axis == 1
    assert data.inputs["h"].shape == (2, 1, 1, 2)
    x = pixels(2, 3, 4)
    for layout, shape, wanted in [("NHW->N1HW", (1, 1, 3, 4), x[:, None, None]), ("NHW->NHW1", (1, 3, 4, 1), x[:, None, :, :, None])]:
        text = f'inputs.x = {{file = "d.npz", array = "x", layout = "{layout}"}}'
        data = load_data(described(tmp_path, text, x=x), {"x": TensorType(shape)})
        assert np.array_equal(data.inputs["x"], wanted)


@given(st.permutations("NHWC"), st.integers(0, 4))
def test_any_layout_is_a_transpose(letters: list[str], new: int) -> None:
    before = "N" + "".join(c for c in letters if c != "N")
    after = "".join(letters[:new]) + "1" + "".join(letters[new:])
    x = pixels(2, 3, 4, 5)
    found = Preparation(layout=parse_layout(f"{before}->{after}", "")).apply(x, "float32")
    for s in range(2):
        one = x[s : s + 1].transpose([before.index(c) for c in letters])
        assert np.array_equal(found[s], np.expand_dims(one, new))


def test_casts_must_keep_the_values(tmp_path: Path) -> None:
    integer = {"x": TensorType((1, 2), "int8")}
    text = 'inputs.x = {file = "d.npz", array = "x", cast = "int8"}'
    data = load_data(described(tmp_path, text, x=np.array([[-128, 127]])), integer)
    assert data.inputs["x"].tolist() == [[[-128, 127]]]
    place = described(tmp_path, text, x=np.array([[0, 128]]))
    assert refusal(lambda: load_data(place, integer)) == (
        f'{place}:1: error[C100]: array "x" must hold whole numbers from -128 to 127 to become int8, not 0 to 128'
    )
    place = described(tmp_path, text.replace("int8", "uint8"), x=np.array([[0, 1]]))
    assert refusal(lambda: load_data(place, integer)).startswith(
        f'{place}:1: error[C100]: array "x" for the input "x" must be int8, not uint8'
    )


WHOLE = ("the file is", "the description must", "the description does", "the model has", "data must")  # said of no line
GOOD = 'inputs.x = {file = "d.npz", array = "x"'
TOML_MISTAKES = [
    ("inputs = ", "the file is not TOML: Invalid value (at end of document)"),
    ("", "the description must say where the inputs come from"),
    ("inputs = 3", "inputs must be a table, not 3"),
    ("inputs.x = 3", 'inputs."x" must be a table, not 3'),
    ("outputs.x = 3", 'the description has no key "outputs"'),
    (f"{GOOD}, men = 3}}", 'inputs."x" has no key "men"'),
    ('inputs.x = {file = "d.npz"}', 'inputs."x" must have a file and an array, and lacks array = …'),
    ("inputs.x = {}", 'inputs."x" must have a file and an array, and lacks file = … and array = …'),
    (f"{GOOD}, zeros = true}}", 'inputs."x" must have a file and an array, or only zeros = true, not file beside it'),
    ("inputs.x = {zeros = false}", 'inputs."x".zeros must be true, not False'),
    ('inputs.x = {file = 3, array = "x"}', 'inputs."x".file must be text, not 3'),
    ('inputs.x = {file = "", array = "x"}', "inputs.\"x\".file must be text, not ''"),
    ('inputs.x = {file = "e.npz", array = "x"}', 'inputs."x".file must be an .npz archive, and there is no file "e.npz"'),
    ('inputs.x = {file = ".", array = "x"}', 'inputs."x".file must be an .npz archive, not a folder or a device as "." is'),
    (f'{GOOD}, fil = "d.npz"}}', 'inputs."x" has no key "fil"'),
    (f"{GOOD}, resize = 3}}", 'inputs."x" comes from a file and cannot have resize'),
    (f"{GOOD}, layout = 3}}", 'inputs."x".layout must be text, not 3'),
    (f'{GOOD}, cast = ["float32"]}}', "inputs.\"x\".cast must be an element type, not ['float32']"),
    (f"{GOOD}}}\nlabels = 3", "labels must be a table, not 3"),
    ("inputs.x = {file = d.npz}", "the file is not TOML: Invalid value (at line 1, column 20)"),
    (f"{GOOD}, scale = 1{'0' * 400}}}", "the file is not TOML: it has a whole number of more than 64 bits"),
    (f"{GOOD}, scale = 1{'0' * 400}.0}}", 'inputs."x".scale must be a finite number, not inf'),
    (f'{GOOD}, scale = "1"}}', "inputs.\"x\".scale must be a finite number, not '1'"),
    (f"{GOOD}, mean = []}}", 'inputs."x".mean must have at least one number'),
    (f"{GOOD}, std = [1, 0]}}", 'inputs."x".std must not be 0'),
    (f"{GOOD}, mean = [1, 2, 3]}}", 'mean and std for array "x" must have 1 or 5 values, not 3'),
    (f'{GOOD}, cast = "int3"}}', "inputs.\"x\".cast must be an element type, not 'int3'"),
    (f'{GOOD}, layout = "NHWC->NCH"}}', 'layout must name each axis once before and after "->", and 1 for new axes, not "NHWC->NCH"'),
    (f'{GOOD}, layout = "NHC->NCH"}}', 'layout "NHC->NCH" needs an array of 3 axes, and "x" has 4'),
    ('inputs.x = {file = "d.npz", array = "z"}', 'd.npz has no array "z"'),
    ('inputs.y = {file = "d.npz", array = "x"}', 'the description does not say where the input "x" comes from'),
    (f"{GOOD}}}\ninputs.y = {{zeros = true}}", 'the model has no input called "y"'),
    ('# a comment\n[inputs.x]\nfile = "d.npz"\narray = "x"\nscale = "1"', "inputs.\"x\".scale must be a finite number, not '1'"),
    ("inputs.x = {zeros = true}", "data must give at least one input"),
]


@pytest.mark.parametrize(("text", "sentence"), TOML_MISTAKES)
def test_mistakes_in_descriptions_are_named(tmp_path: Path, text: str, sentence: str) -> None:
    place = described(tmp_path, text, x=pixels(2, 3, 4, 5))
    found, _, remedy = refusal(lambda: load_data(place, IMAGE)).partition("\n  help: ")
    line = "" if sentence.startswith(WHOLE) else f":{text.count(chr(10)) + 1}"
    assert found == f"{place}{line}: error[C100]: {sentence}"
    assert remedy or sentence.startswith("the file is not TOML: it has")


def test_the_digest_covers_description_and_arrays(tmp_path: Path) -> None:
    texts, arrays = [f"{GOOD}}}", f"{GOOD}, scale = 2}}"], [pixels(2, 3, 4, 5), pixels(2, 3, 4, 5) + 1]
    digests = {load_data(described(tmp_path, t, x=x), IMAGE).sha256 for t in texts for x in arrays}
    assert len(digests) == 4


@pytest.mark.shared
def test_every_description_beside_the_models_is_read(shared_dir: Path) -> None:
    from rewrite_compiler.frontend.load import load

    files = sorted((shared_dir / "models" / "trained").glob("*.toml"))
    assert len(files) >= 15
    for file in files:
        model = load(file.parent / f"{file.name.split('.')[0]}.onnx").program
        data = load_data(file, {model.names[v]: model.types[v] for v in model.inputs}).evenly(2)
        for name, x in data.inputs.items():
            assert x.shape[1:] == next(model.types[v].shape for v in model.inputs if model.names[v] == name)
