"""Data in other forms: .npy folders, images, text, ONNX's test data; what is wrong with them is told with file and sample."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from pace import within_steps

from rewrite_compiler.data import Dataset, load_data, samples_for
from rewrite_compiler.data.images import CHANNELS, ImageFolder, _prepared_kind, prepared_image
from rewrite_compiler.data.pillow import decode_jpeg, unfiltered
from rewrite_compiler.data.png import decode_png
from rewrite_compiler.data.resize import cropped, resized
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT

IMAGE = {"x": TensorType((1, 3, 4, 5))}


def refusal(make: Callable[[], Any]) -> str:
    with pytest.raises(FlexmatchError) as caught:
        make()
    return str(caught.value)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# -- .npy


def test_a_folder_of_npy_is_read_row_by_row(tmp_path: Path) -> None:
    x = normal(9, 3, 4, 5)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "labels.npy", np.arange(9))
    data = load_data(tmp_path, IMAGE)
    assert (data.count, data.task) == (9, "classification")
    assert np.array_equal(data.inputs["x"][:, 0], x)
    some = data.take(np.array([7, 8, 2, 2, 0])).take(np.array([0, 1, 3]))
    assert np.array_equal(some.inputs["x"][:, 0], x[[7, 8, 2]])
    assert some.labels is not None
    assert some.labels.tolist() == [7, 8, 2]
    assert [some.number(n) for n in range(3)] == [7, 8, 2]
    assert load_data(tmp_path, IMAGE).sha256 == data.sha256


def test_a_file_that_changes_or_shrinks_meanwhile(tmp_path: Path) -> None:
    for spoil in (lambda f: os.truncate(f, 300), lambda f: np.save(f, normal(9, 3, 4, 5, seed=1)), lambda f: os.utime(f, (1, 1))):
        file = tmp_path / "x.npy"
        np.save(file, normal(9, 3, 4, 5))
        data = load_data(tmp_path, IMAGE)
        spoil(file)
        os.utime(file, ns=(1, 5)) if file.stat().st_size > 300 else None
        assert refusal(lambda data=data: data.inputs) == (
            f"{file}: error[F106]: the file changed while it was read\n  help: run again when nobody writes to it"
        )


def npy(path: Path, dtype: str, shape: str, body: bytes, order: str = "False") -> None:
    head = f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + body)


def test_npy_files_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    for write, said in (
        (lambda: npy(file, "<f4", "(2, 3)", b"1234"), 'C100]: array "x" of shape (2, 3) must have 24 bytes, not 4'),
        (lambda: npy(file, "<f4", f"({1 << 40},)", b""), f'C100]: array "x" of shape ({1 << 40},) must have {1 << 42} bytes, not 0'),
        (lambda: npy(file, "|O", "(1,)", b"\x80\x04N."), 'C101]: array "x" holds pickled objects, which are never loaded'),
        (lambda: npy(file, "<f4", "(1, 2)", b"12345678", "True"), 'C100]: array "x" must be stored row by row'),
        (lambda: npy(file, "<f4", "(0, 3, 4, 5)", b""), "C100]: data must have at least one sample, not 0"),
    ):
        write()
        found = refusal(lambda: load_data(tmp_path, IMAGE)).splitlines()[0]
        assert found.endswith(f"error[{said}")
        assert str(tmp_path) in found


def test_an_npy_file_has_no_more_bytes_than_data_may(tmp_path: Path) -> None:
    npy(tmp_path / "x.npy", "<f4", f"({1 << 28}, 3, 4, 5)", b"")
    os.truncate(tmp_path / "x.npy", (tmp_path / "x.npy").stat().st_size + (240 << 28))
    size = (tmp_path / "x.npy").stat().st_size
    found = refusal(lambda: load_data(tmp_path, IMAGE))
    assert found.endswith(f"error[C101]: an .npy file must have at most {8 << 30} bytes, not {size}\n  help: raise --limits data_bytes=")


def test_the_sample_that_is_not_finite_is_named(tmp_path: Path) -> None:
    x = normal(50, 6)
    x[[31, 40], 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    made = Builder("app")
    v = made.input("x", TensorType((6,)))
    assert refusal(lambda: samples_for(made.finish([v]), tmp_path)) == (
        f'{tmp_path}: error[C102]: the input "x" must be finite, not so in 2 of 50 samples, first in sample 31'
    )


@pytest.mark.parametrize(
    ("kind", "key", "shown"),
    [("float32", "scale = 1e39", "0.0 to 2.0"), ("uint8", "std = 1e-44", "0 to 255"), ("int32", "cast = 'float16'", "0 to 200000")],
)
def test_a_preprocessing_that_gives_infinities_is_named(kind: str, key: str, shown: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=(np.arange(3).repeat(6).reshape(3, 6) * (100000 if "cast" in key else 1)).astype(kind))
    (tmp_path / "d.toml").write_text(f'inputs.x = {{file = "d.npz", array = "x", {key}}}\n', "utf-8")
    made = Builder("app")
    v = made.input("x", TensorType((6,)))
    assert refusal(lambda: samples_for(made.finish([v]), tmp_path / "d.toml")) == (
        f'{tmp_path / "d.toml"}: error[C102]: the input "x" must be finite after its preprocessing, not so for samples from {shown}\n'
        "  help: correct cast, zero_point, scale, mean and std"
    )


# -- images


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(image: Any, filters: list[int], colour: int | None = None, extra: bytes = b"") -> bytes:
    """Encode an image with one prediction a line, computed from the definition."""
    rows, columns, depth = image.shape
    wide = image.reshape(rows, -1).astype(int)
    out = b""
    for n, row in enumerate(wide):
        up = wide[n - 1] if n else np.zeros_like(row)
        left, corner = (np.concatenate([np.zeros(depth, int), r[:-depth]]) for r in (row, up))
        p = left + up - corner
        d = np.abs(np.stack([p - left, p - up, p - corner]))
        paeth = np.select([(d[0] <= d[1]) & (d[0] <= d[2]), d[1] <= d[2]], [left, up], corner)
        predicted = [0, left, up, (left + up) // 2, paeth][filters[n % len(filters)]]
        out += bytes([filters[n % len(filters)]]) + ((row - predicted) % 256).astype(np.uint8).tobytes()
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[depth] if colour is None else colour
    head = struct.pack(">IIBBBBB", columns, rows, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(out)) + chunk(b"IEND", b"")


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 99))
def test_every_prediction_is_undone(rows: int, columns: int, depth: int, filters: list[int], seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (rows, columns, depth), np.uint8)
    assert np.array_equal(decode_png(png(image, filters)), image)


def test_a_palette(tmp_path: Path) -> None:
    colours = np.arange(12, dtype=np.uint8)
    image = np.array([[[0], [3]], [[2], [1]]], np.uint8)
    raw = png(image, [0], 3, chunk(b"PLTE", colours.tobytes()))
    assert np.array_equal(decode_png(raw), colours.reshape(4, 3)[image[:, :, 0]])


@settings(deadline=None)
@given(st.data())
def test_damaged_images_end_in_one_sentence(data: st.DataObject) -> None:
    whole = bytearray(png(np.zeros((3, 4, 3), np.uint8), [0, 1, 4]))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FlexmatchError):
        decode_png(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def test_a_picture_bomb_is_not_unpacked() -> None:
    head = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1 << 24))) + chunk(b"IEND", b"")
    assert refusal(lambda: decode_png(raw)) == "error[C100]: the image must have 6 bytes, not more"
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 20, 1 << 20, 8, 2, 0, 0, 0)) + chunk(b"IEND", b"")
    said = f"error[C101]: an image must have 1 to {1 << 26} pixels, not {1 << 40}\n  help: make it smaller before"
    assert refusal(lambda: decode_png(raw)) == said


IMAGES = """
[inputs.x]
folder = "pictures"
scale = 0.5
mean = [1, 2, 3]
layout = "NHWC->NCHW"

[labels]
folders = true
"""


def pictures(folder: Path, count: int = 5) -> Any:
    """Write images, some PNG, some PPM, in two folders; return them in the order of their names."""
    images = np.random.default_rng(4).integers(0, 256, (count, 4, 5, 3), np.uint8)
    for n, image in enumerate(images):
        place = folder / "pictures" / ("cats" if n < 2 else "dogs")
        place.mkdir(parents=True, exist_ok=True)
        if n % 2:
            (place / f"{n}.ppm").write_bytes(b"P6\n# a comment\n5 4\n255\n" + image.tobytes())
        else:
            (place / f"{n}.png").write_bytes(png(image, [4, 2]))
    (folder / "d.toml").write_text(IMAGES, "utf-8")
    return images


def test_a_folder_of_images(tmp_path: Path) -> None:
    images = pictures(tmp_path)
    data = load_data(tmp_path / "d.toml", IMAGE)
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 1, 1, 1]
    wanted = images.astype(np.float32) * np.float32(0.5) - np.float32([1, 2, 3])
    assert np.array_equal(data.inputs["x"][:, 0], wanted.transpose(0, 3, 1, 2))
    assert np.array_equal(data.evenly(2).inputs["x"], data.inputs["x"][[0, 4]])
    before = data.sha256
    (tmp_path / "pictures" / "cats" / "0.png").write_bytes(png(255 - images[0], [0]))
    assert load_data(tmp_path / "d.toml", IMAGE).sha256 != before


def test_bad_images_are_named(tmp_path: Path) -> None:
    pictures(tmp_path)
    file = tmp_path / "pictures" / "dogs" / "4.png"
    for content, said in (
        (png(np.zeros((4, 4, 3), np.uint8), [0]), "all images must be 4×5×3, as the first one, not 4×4×3"),
        (b"GIF89a", "the file is not a PNG, PGM or PPM image"),
        (b"P6 5 4 255\nshort", "the image must have 60 bytes of 0 to 255, not 5 of 0 to 255"),
        (deep(np.zeros((4, 5, 3), np.uint16)), "all images must be 4×5×3, as the first one, not 4×5×3 of 16 bits"),
    ):
        file.write_bytes(content)
        assert refusal(lambda: load_data(tmp_path / "d.toml", IMAGE)).splitlines()[0] == f"{file}: error[C100]: {said}"
    for f in (tmp_path / "pictures").rglob("*.p*"):
        f.rename(f.with_suffix(".gif"))
    assert refusal(lambda: load_data(tmp_path / "d.toml", IMAGE)) == (
        f"{tmp_path / 'pictures'}: error[C100]: the folder has no images (.png, .jpg, .jpeg, .pgm, .ppm)\n"
        "  help: put the images there, or in one folder a class"
    )


def test_an_image_that_changes_during_a_run_is_refused(tmp_path: Path) -> None:
    images = pictures(tmp_path)
    data = load_data(tmp_path / "d.toml", IMAGE)
    file = tmp_path / "pictures" / "dogs" / "4.png"
    file.write_bytes(png(255 - images[4], [1]))
    os.utime(file, ns=(1, 1))
    assert data.rows(slice(0, 4)).inputs["x"].shape[0] == 4
    assert refusal(lambda: data.rows(slice(4, 5)).inputs) == (
        f"{file}: error[F106]: the file changed while it was read\n  help: run again when nobody writes to it"
    )


def deep(image: Any, bits: int = 16, interlaced: bool = False, colour: int | None = None, extra: bytes = b"") -> bytes:
    """Encode an image of another depth without predictions, its passes from their definition."""
    rows, columns, depth = image.shape
    grid = np.add.outer(np.arange(rows) % 8 * 8, np.arange(columns) % 8)
    adam = "16462646 77777777 56565656 77777777 36463646 77777777 56565656 77777777".replace(" ", "")
    passes = np.array([int(c) for c in adam])[grid] if interlaced else np.ones((rows, columns), int)
    out = b""
    for k in range(1, 8):
        for row in range(rows):
            chosen = image[row, passes[row] == k].reshape(-1)
            digits = "".join(f"{int(v):0{bits}b}" for v in chosen)
            if digits:
                out += b"\0" + int(digits.ljust(-(-len(digits) // 8) * 8, "0"), 2).to_bytes(-(-len(digits) // 8), "big")
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[depth] if colour is None else colour
    head = struct.pack(">IIBBBBB", columns, rows, bits, kind, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(out)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 6, 8])
def test_predictions_of_every_depth_are_undone_strip_by_strip(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of what is predicted, from its definition, gives the bytes back, whatever lines are given to Pillow at once."""
    random = np.random.default_rng(depth)
    kinds, lines = random.integers(0, 5, 9, np.uint8), random.integers(0, 256, (9, 7 * depth), np.uint8)
    wanted = np.zeros((10, 8 * depth), int)
    for n, (kind, line) in enumerate(zip(kinds, lines, strict=True), 1):
        for k, byte in enumerate(line, depth):
            a, b, c = wanted[n, k - depth], wanted[n - 1, k], wanted[n - 1, k - depth]
            near = min((a, b, c), key=lambda x, p=a + b - c: abs(p - x))
            wanted[n, k] = (int(byte) + (0, a, b, (a + b) // 2, near)[kind]) % 256
    for strip in (1, 3 * 7 * depth, 1 << 24):
        monkeypatch.setattr("rewrite_compiler.data.pillow.STRIP", strip)
        assert unfiltered(kinds, lines, depth).tolist() == wanted[1:, depth:].tolist()


def test_images_must_be_decoded_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(tmp_path)
    now = [0.0]
    monkeypatch.setattr("rewrite_compiler.data.image_budgets.time.monotonic", lambda: now.__setitem__(0, now[0] + 1) or now[0])
    limits = DEFAULT.with_overrides(["data_seconds=3"])
    assert refusal(lambda: load_data(tmp_path / "d.toml", IMAGE, limits=limits).inputs) == (
        f"{tmp_path / 'pictures'}: error[C101]: 5 images must be decoded within 3 seconds, not 3 of them\n"
        "  help: make them smaller before, or raise --limits data_seconds="
    )


def test_the_pixels_of_images_that_are_decoded_at_once_are_counted_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their headers decide, so that a folder of images that each are small enough is refused in no time."""
    pictures(tmp_path)
    data = load_data(tmp_path / "d.toml", IMAGE, limits=DEFAULT.with_overrides(["data_pixels=80"]))
    assert data.evenly(4).inputs["x"].shape[0] == 4
    monkeypatch.setattr("rewrite_compiler.data.images.prepared_image", None)
    assert refusal(lambda: data.inputs) == (
        f"{tmp_path / 'pictures'}: error[C101]: 5 images that are decoded at once must have at most 80 pixels together, not 100\n"
        "  help: make them smaller before, or raise --limits data_pixels="
    )


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK", "P", "I;16", "LA", "1"])
def test_a_header_declares_what_decoding_gives(mode: str, tmp_path: Path) -> None:
    """Whatever is resized, cropped and made gray: what a folder was read as is what its images are."""
    from PIL import Image

    picture = Image.new(mode, (9, 6), 0)
    for kind in ("png", "jpeg", *["ppm"] * (mode in ("L", "RGB"))):
        with contextlib.suppress(OSError):  # JPEG has not every mode
            picture.save(file := tmp_path / f"x.{kind}")
            for channels in CHANNELS:
                for resize, crop in ((), ()), ((4,), (3, 2)), ((7, 5), ()):
                    source = ImageFolder(tmp_path, channels, resize, crop)
                    found = prepared_image(raw := file.read_bytes(), file, source)
                    assert _prepared_kind(raw, file, source) == ((found.shape, found.dtype), 54)


def test_a_folder_of_enormous_images_is_answered_at_once(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    lines = zlib.compressobj()
    body = b"".join(lines.compress(b"\4" + bytes(16_000)) for _ in range(16_000)) + lines.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 16_000, 16_000, 8, 0, 0, 0, 0))
    for n in range(40):
        (tmp_path / "pictures" / f"{n}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", body) + chunk(b"IEND", b""))
    (tmp_path / "d.toml").write_text('[inputs.x]\nfolder = "pictures"\nresize = [4, 5]\nlayout = "NHWC->NCHW"\n', "utf-8")
    said = "0.png: error[C101]: an image must have 1 to 67108864 pixels, not 256000000\n  help: make it smaller before"
    assert within_steps(25_000_000, lambda: refusal(lambda: load_data(tmp_path / "d.toml", IMAGE).inputs)).endswith(said)


def test_sizes_and_scans_beyond_the_budget_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "0.png").write_bytes(png(np.zeros((1, 40, 3), np.uint8), [0]))
    for size in ("16384", "[16384, 16384]"):
        (tmp_path / "d.toml").write_text(f'[inputs.x]\nfolder = "pictures"\nresize = {size}\nlayout = "NHWC->NCHW"\n', "utf-8")
        assert "error[C101]: an image must have 1 to" in refusal(lambda: load_data(tmp_path / "d.toml", IMAGE).inputs)
    with pytest.raises(FlexmatchError, match=f"an image must have 1 to {1 << 26} pixels, not {1 << 27}"):
        resized(np.zeros((1 << 13, 1, 1), np.uint8), (1, 1 << 14))
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(out, "JPEG", progressive=True)
    assert decode_jpeg(out.getvalue()).shape == (8, 8, 3)
    monkeypatch.setattr("rewrite_compiler.data.pillow.MAX_SCANNED", 64 * 2)
    assert refusal(lambda: decode_jpeg(out.getvalue())).startswith("error[C101]: the scans of an image must have at most 128 pixels, not ")


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 11),
    st.integers(1, 11),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (8, 3), (16, 1), (16, 4)]),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_depth_and_interlacing(rows: int, columns: int, kind: tuple[int, int], interlaced: bool, seed: int) -> None:
    bits, depth = kind
    image = np.random.default_rng(seed).integers(0, 1 << bits, (rows, columns, depth), np.uint16)
    wanted = image * (255 // ((1 << bits) - 1)) if bits < 8 else image
    found = decode_png(deep(image, bits, interlaced))
    assert np.array_equal(found, wanted)
    assert found.dtype == (np.uint16 if bits == 16 else np.uint8)


def test_a_small_palette() -> None:
    colours = np.arange(12, dtype=np.uint8)
    image = np.random.default_rng(1).integers(0, 4, (5, 7, 1), np.uint8)
    raw = deep(image, 2, True, 3, chunk(b"PLTE", colours.tobytes()))
    assert np.array_equal(decode_png(raw), colours.reshape(4, 3)[image[:, :, 0]])
    assert refusal(lambda: decode_png(deep(image, 3))) == (
        "error[C100]: the image must be of a kind that PNG has, not of 3 bits, colour type 0, interlacing 0"
    )


def test_resizing_and_cropping(tmp_path: Path) -> None:
    ramp = np.repeat(np.arange(0, 80, 10, np.uint8)[:, None], 6, axis=1)[:, :, None]
    assert np.array_equal(resized(ramp, (8, 6)), ramp)
    assert resized(ramp, (4, 6))[:, 0, 0].tolist() == [7, 25, 45, 63]  # under a triangle of four rows: 1 3 3 1, cut at the edges
    assert resized(ramp, (3,)).shape == (4, 3, 1)
    assert resized(np.full((5, 9, 3), 65535, np.uint16), (7, 4)).tolist() == np.full((7, 4, 3), 65535).tolist()
    assert cropped(ramp, (2,))[:, 0, 0].tolist() == [30, 40]
    assert cropped(ramp, (3, 6))[:, 0, 0].tolist() == [20, 30, 40]  # half pixels go to the even side
    (tmp_path / "pictures").mkdir()
    for n, shape in enumerate(((9, 12, 3), (16, 8, 3), (8, 8, 1))):
        (tmp_path / "pictures" / f"{n}.png").write_bytes(png(np.full(shape, 10 * n + 10, np.uint8), [0]))
    sizes = 'folder = "pictures"\nresize = 8\ncrop = [4, 5]\n'
    (tmp_path / "d.toml").write_text(f'[inputs.x]\n{sizes}layout = "NHWC->NCHW"\n', "utf-8")
    found = load_data(tmp_path / "d.toml", IMAGE).inputs["x"]
    assert found.tolist() == [np.full(found.shape[1:], v).tolist() for v in (10, 20, 30)]
    for line, said in (
        ("crop = 9", "0.png: error[C100]: the image must have at least 9×9 pixels to be cropped, not 8×10"),
        ("crop = 0", 'd.toml:4: error[C100]: inputs."x".crop must be 1 to 16384 pixels, or rows and columns, not 0'),
        ("crop = [1, 2, 3]", 'd.toml:4: error[C100]: inputs."x".crop must be 1 to 16384 pixels, or rows and columns, not [1, 2, 3]'),
    ):
        (tmp_path / "d.toml").write_text(f'[inputs.x]\nfolder = "pictures"\nresize = 8\n{line}\nlayout = "NHWC->NCHW"\n', "utf-8")
        assert refusal(lambda: load_data(tmp_path / "d.toml", IMAGE)).splitlines()[0].endswith(said)


def test_colours_become_gray() -> None:
    image = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [7, 7, 7], [255, 255, 255]]], np.uint8)
    assert prepared_image(png(image, [0]), Path("x.png"), ImageFolder(Path(), "L"))[0, :, 0].tolist() == [76, 150, 29, 7, 255]


def test_jpeg_images(tmp_path: Path) -> None:
    from PIL import Image as image

    (tmp_path / "pictures").mkdir()
    smooth = np.add.outer(np.arange(0, 40, 10), np.arange(0, 50, 10)).astype(np.uint8)
    for n, pixels in enumerate((smooth, np.stack([smooth, smooth // 2, 255 - smooth], axis=2))):
        image.fromarray(pixels).save(tmp_path / "pictures" / f"{n}.jpg", quality=100, subsampling=0)
    (tmp_path / "d.toml").write_text('[inputs.x]\nfolder = "pictures"\nlayout = "NHWC->NCHW"\n', "utf-8")
    found = load_data(tmp_path / "d.toml", IMAGE).inputs["x"].reshape(2, 3, 4, 5)
    assert np.abs(found[0] - smooth).max() <= 4
    assert np.abs(found[1] - np.stack([smooth, smooth // 2, 255 - smooth])).max() <= 8
    file = tmp_path / "pictures" / "1.jpg"
    whole = file.read_bytes()
    for content, said in ((whole[:20], "the file is not a JPEG image"), (whole[: len(whole) // 2], "the image is damaged: ")):
        file.write_bytes(content)
        assert refusal(lambda: load_data(tmp_path / "d.toml", IMAGE).inputs).startswith(f"{file}: error[C100]: {said}")


# -- text


def text(folder: Path, more: str = "") -> Path:
    (folder / "words.txt").write_text("the cat sat\non the mat\nthe end\n", "utf-8")
    (folder / "vocabulary.txt").write_text("<unk>\n<eos>\nthe\ncat\nsat\non\nmat\n", "utf-8")
    (folder / "d.toml").write_text(
        f'[inputs.tokens]\ntext = "words.txt"\nvocabulary = "vocabulary.txt"\nwindow = 3\nlayout = "NS->SN"\n{more}\n'
        "[targets]\nnext = true\n", "utf-8"
    )  # fmt: skip
    return folder / "d.toml"


def test_a_text_becomes_windows_and_the_words_behind_them(tmp_path: Path) -> None:
    tokens = {"tokens": TensorType((3, 1), "int64")}
    data = load_data(text(tmp_path, 'unknown = "<unk>"\nend_of_line = "<eos>"'), tokens)
    every = [2, 3, 4, 1, 5, 2, 6, 1, 2, 0, 1]
    assert data.task == "language model"
    assert data.inputs["tokens"][:, :, 0].tolist() == [every[:3], every[3:6], every[6:9]]
    assert data.targets is not None
    assert data.targets.tolist() == [every[1:4], every[4:7], every[7:10]]
    place = text(tmp_path)
    assert refusal(lambda: load_data(place, tokens)) == (
        f'{tmp_path / "words.txt"}:3: error[C100]: the vocabulary must have the word "end"\n'
        '  help: or name a word for others: unknown = "<unk>"'
    )
    place = text(tmp_path, 'unknown = "<none>"')
    assert refusal(lambda: load_data(place, tokens)).endswith('error[C100]: the vocabulary must have the word "<none>"')


MISTAKES = [
    ('inputs.x = {folder = "pictures", channels = "CMYK"}', 'inputs."x".channels must be one of RGB, BGR, L, not "CMYK"'),
    ('inputs.x = {folder = "pictures", file = "d.npz"}', 'inputs."x" comes from a folder and cannot have file'),
    ('inputs.x = {folder = 3}', 'inputs."x".folder must be text, not 3'),
    ('inputs.x = {text = "words.txt", vocabulary = "v.txt"}',
     'inputs."x" must have a vocabulary and a window of at least one word, and lacks window'),
    ('inputs.x = {text = "words.txt", vocabulary = "v.txt", window = "4"}',
     "inputs.\"x\" must have a vocabulary and a window of at least one word, and has window = '4'"),
    ('inputs.x = {text = "words.txt", window = 3}',
     'inputs."x" must have a vocabulary and a window of at least one word, and lacks vocabulary'),
    ('inputs.x = {folder = "flat"}\nlabels = {folders = true}',
     "folders = true needs one input of images that lie in one folder a class, not 0"),
]  # fmt: skip


@pytest.mark.parametrize(("description", "said"), MISTAKES)
def test_mistakes_in_descriptions(tmp_path: Path, description: str, said: str) -> None:
    pictures(tmp_path)
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "0.png").write_bytes(png(np.zeros((4, 5, 3), np.uint8), [0]))
    (tmp_path / "d.toml").write_text(description, "utf-8")
    assert refusal(lambda: load_data(tmp_path / "d.toml", {"x": TensorType((1, 4, 5, 3))})).splitlines()[0] == (
        f"{tmp_path / 'd.toml'}:{description.count(chr(10)) + 1}: error[C100]: {said}"
    )


# -- ONNX's test data


def write_sets(folder: Path) -> Dataset:
    for n in range(3):
        place = folder / f"test_data_set_{n}"
        place.mkdir(exist_ok=True)
        for name, x in (("input_0", normal(1, 2, seed=n)), ("input_1", np.array([n])), ("output_0", normal(1, 4, seed=n + 9))):
            (place / f"{name}.pb").write_bytes(numpy_helper.from_array(x, name).SerializeToString())
    return load_data(folder, {"a": TensorType((1, 2)), "b": TensorType((1,), "int64")})


def test_the_test_data_of_a_model(tmp_path: Path) -> None:
    data = write_sets(tmp_path)
    assert (data.count, data.task) == (3, "none")
    assert np.array_equal(data.inputs["a"][2], normal(1, 2, seed=2))
    assert data.inputs["b"].tolist() == [[0], [1], [2]]
    assert data.targets is not None
    assert data.targets.shape == (3, 1, 4)
    one = load_data(tmp_path / "test_data_set_1", {"a": TensorType((1, 2)), "b": TensorType((1,), "int64")})
    assert (one.count, one.inputs["b"].tolist()) == (1, [[1]])
    (tmp_path / "test_data_set_1" / "output_0.pb").unlink()
    assert refusal(lambda: read_sets(tmp_path)).splitlines()[0] == (
        f"{tmp_path}: error[C100]: all test data sets must have output_0.pb or none, not 2 of 3"
    )
    for n in (0, 2):
        (tmp_path / f"test_data_set_{n}" / "output_0.pb").unlink()
    assert read_sets(tmp_path).targets is None
    assert refusal(lambda: load_data(tmp_path, {"a": TensorType((1, 2))})).splitlines()[0] == (
        f"{tmp_path / 'test_data_set_0'}: error[C100]: the test data set must have 1 inputs, as the model, and has input_1.pb"
    )


def read_sets(folder: Path) -> Dataset:
    return load_data(folder, {"a": TensorType((1, 2)), "b": TensorType((1,), "int64")})


def test_bad_test_data_are_named(tmp_path: Path) -> None:
    write_sets(tmp_path)
    file = tmp_path / "test_data_set_2" / "input_0.pb"
    for content, said in (
        (numpy_helper.from_array(normal(1, 3), "a").SerializeToString(),
         f"{file}: error[C100]: input_0.pb must be float32[1, 2], as in the first test data set, not float32[1, 3]"),
        (b"hello", f"{file}: error[C100]: the file is not a tensor of ONNX"),
        (b"", f"{file}: error[F102]: the file is empty"),
        (None, f"{file.parent}: error[C100]: the test data set must have input_0.pb"),
    ):  # fmt: skip
        file.unlink() if content is None else file.write_bytes(content)
        assert refusal(lambda: read_sets(tmp_path)).splitlines()[0] == said
    huge = onnx.TensorProto(data_type=1, dims=[1 << 40, 1 << 40])
    file.write_bytes(huge.SerializeToString())
    assert refusal(lambda: read_sets(tmp_path)).startswith(f"{file}: error[")
