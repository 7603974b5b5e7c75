"""Transposed convolutions and repeated pixels against onnxruntime, over strides, pads, groups and modes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from onnx_models import agrees, imported, refusal, session, single


def numbers(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def transposed(size: int, taps: int, group: int = 1, bias: bool = True, **more: Any) -> Any:
    """Return a model of one transposed convolution over two axes."""
    operands = [(2, 4, size, size + 1), numbers(4, 6 // group, taps, taps)]
    return single("ConvTranspose", operands + [numbers(6)] * bias, kernel_shape=[taps, taps], group=group, **more)


WINDOWS = [(k, s, p, e) for k, s, p, e in itertools.product((1, 2, 3, 4, 5), (1, 2, 3), (0, 1, 2), (0, 1)) if e < s and 2 * p < k]


@pytest.mark.parametrize(("taps", "stride", "pad", "extra"), WINDOWS)
def test_a_transposed_convolution_is_one_convolution(taps: int, stride: int, pad: int, extra: int) -> None:
    proto = transposed(5, taps, strides=[stride, stride], pads=[pad, pad, pad, pad], output_padding=[extra, extra])
    (conv,) = [n for n in agrees(proto).program.nodes if n.op == "conv"]
    assert conv.attribute("strides") == (1, 1)


@pytest.mark.parametrize(
    "more",
    [
        {"group": 2, "strides": [2, 3], "pads": [1, 0, 0, 2]},
        {"bias": False, "strides": [2, 2]},
        {"dilations": [2, 3], "pads": [1, 1, 2, 0]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "auto_pad": "VALID"},
        {"strides": [2, 2], "output_shape": [10, 12]},
    ],
)
def test_other_spellings_of_a_transposed_convolution(more: dict[str, Any]) -> None:
    assert "conv" in {n.op for n in agrees(transposed(5, 3, **more)).program.nodes}


def test_multiplications_are_those_of_the_model_when_the_stride_divides_the_taps() -> None:
    for taps, stride in ((2, 2), (4, 2), (3, 3)):
        p = agrees(transposed(5, taps, strides=[stride, stride])).program
        (conv,) = [n for n in p.nodes if n.op == "conv"]
        x, w, y = (p.types[v].shape for v in (*conv.inputs, *conv.outputs))
        assert math.prod(y) * math.prod(w[1:]) == 2 * math.prod(y[2:]) * 4 * 6 * taps**2
        assert y[2:] == tuple(n + taps // stride - 1 for n in x[2:])  # what is computed from zeros around the image is at its rim


def test_one_and_three_axes() -> None:
    for axes in (1, 3):
        operands = [(1, 2, *[4] * axes), numbers(2, 3, *[3] * axes), numbers(3)]
        assert "conv" in {n.op for n in agrees(single("ConvTranspose", operands, strides=[2] * axes)).program.nodes}


@pytest.mark.parametrize("shape", [(1, 2, 1, 1), (1, 2, 1, 4), (1, 2, 4, 1)])
@pytest.mark.parametrize("more", [{"strides": [2, 2]}, {"pads": [1, 1, 1, 1]}, {"strides": [3, 3], "output_padding": [1, 1]}])
def test_an_image_of_one_row_or_column_is_transposed_too(shape: tuple[int, ...], more: dict[str, Any]) -> None:
    assert "conv" in {n.op for n in agrees(single("ConvTranspose", [shape, numbers(2, 3, 3, 3)], **more)).program.nodes}


def test_pads_that_leave_nothing_stay_with_the_host() -> None:
    for pads, is_done in (((0, 0, 0, 2), True), ((0, 0, 0, 3), False)):
        proto = single("ConvTranspose", [(1, 2, 4, 1), numbers(2, 3, 3, 3)], pads=pads)
        assert ("conv" in {n.op for n in imported(proto).program.nodes}) == is_done


def test_four_axes_are_more_than_a_tensor_has_room_for() -> None:
    for axes, group, is_done in ((3, 1, True), (3, 2, False)):
        proto = single("ConvTranspose", [(1, 2, *[2] * axes), numbers(2, 2, *[1] * axes)], group=group)
        nodes = imported(proto).program
        assert ("conv" in {n.op for n in nodes.nodes}) == is_done
        assert is_done or [o.reason for o in nodes.opaque.values()] == [
            "it has 3 axes, and to spread channels over them takes twice as many"
        ]


def test_a_bias_computed_at_run_time_is_added_to_the_image() -> None:
    agrees(single("ConvTranspose", [(1, 2, 4, 4), numbers(2, 3, 2, 2), (3,)], strides=[2, 2]))


@pytest.mark.parametrize(
    ("operands", "more", "why"),
    [
        ([(1, 2, 4, 4), (2, 3, 2, 2)], {}, 'its filters, "x1", are computed at run time'),
        ([(1, 2, 4, 4), numbers(2, 3, 2, 2)], {"strides": [2, 2], "dilations": [2, 2]}, "it has strides and dilations"),
    ],
)
def test_what_stays_with_the_host_says_why(operands: list[Any], more: dict[str, Any], why: str) -> None:
    (opaque,) = imported(single("ConvTranspose", operands, **more)).program.opaque.values()
    assert opaque.reason == why


def test_a_mode_that_onnx_does_not_have_is_refused() -> None:
    sentence = 'error[F131]: mode of Resize must be nearest, linear or cubic, not "lanczos"'
    assert sentence in refusal(resized((1, 1, 2, 2), mode="lanczos"))


def test_nearest_elements_from_the_middle_of_places_are_repeated_ones() -> None:
    """So does Keras's UpSampling2D come from tf2onnx."""
    more = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    assert [n.op for n in agrees(resized((1, 1, 2, 3), **more)).program.nodes] == ["reshape", "expand", "reshape"]


def test_wrong_counts_are_refused() -> None:
    proto = single("ConvTranspose", [(1, 2, 4, 4), numbers(2, 3, 2, 2)], pads=[1, 1])
    assert refusal(proto).startswith('app.onnx:node "convtranspose": error[F131]: ConvTranspose over 2 axes needs 4 pads, not (1, 1)')


# -- resizing


NONE = np.zeros(0, np.float32)


def resized(scales: Any = NONE, sizes: Any = None, **more: Any) -> Any:
    operands = [(1, 2, 3, 4), NONE, np.asarray(scales, np.float32)]
    return single("Resize", operands + ([] if sizes is None else [np.asarray(sizes, np.int64)]), opset=19, **more)


@pytest.mark.parametrize("place", ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize("mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 3, 1), (1, 1, 1, 4)])
def test_nearest_elements_are_repeated_or_left_to_the_host(place: str, mode: str, scales: tuple[int, ...]) -> None:
    proto = resized(scales, mode="nearest", nearest_mode=mode, coordinate_transformation_mode=place)
    x = numbers(1, 2, 3, 4)
    repeated = x.repeat(scales[2], axis=2).repeat(scales[3], axis=3)
    (y,) = session(proto).run(None, {"x0": x})
    is_repeated = np.array_equal(y, repeated) and place != "align_corners"  # where it depends on the extents
    assert ("expand" in {n.op for n in agrees(proto).program.nodes}) == is_repeated


@pytest.mark.parametrize("place", ["asymmetric", "half_pixel", "pytorch_half_pixel"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 2), (1, 1, 3, 1), (1, 1, 1, 4), (1, 1, 3, 2)])
def test_linear_interpolation_is_a_depthwise_convolution(place: str, scales: tuple[int, ...]) -> None:
    p = agrees(resized(scales, mode="linear", coordinate_transformation_mode=place)).program
    (conv,) = [n for n in p.nodes if n.op == "conv"]
    assert conv.attribute("group") == 2
    assert not p.opaque


def test_a_row_is_interpolated_too() -> None:
    operands = [(2, 3, 5), NONE, np.asarray((1, 1, 2), np.float32)]
    assert "conv" in {n.op for n in agrees(single("Resize", operands, opset=19, mode="linear")).program.nodes}


def test_sizes_and_axes_say_the_same() -> None:
    for more in ({"sizes": (1, 2, 6, 8)}, {"sizes": (6, 8), "axes": [2, 3]}, {"scales": (2, 2), "axes": [-2, -1]}):
        p = agrees(resized(mode="nearest", **more)).program
        assert [n.op for n in p.nodes] == ["reshape", "expand", "reshape"]


@pytest.mark.parametrize(
    ("scales", "more", "why"),
    [
        ((1, 1, 2, 2), {"mode": "cubic"}, 'its mode is "cubic"; laws cover nearest and linear'),
        (
            (1, 1, 2, 2),
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            'its coordinate_transformation_mode "align_corners" does not place results alike around every element',
        ),
        ((1, 1, 1.5, 2), {"mode": "nearest"}, "it does not enlarge by whole numbers"),
    ],
)
def test_other_resizes_stay_with_the_host(scales: tuple[float, ...], more: dict[str, Any], why: str) -> None:
    (opaque,) = agrees(resized(scales, **more)).program.opaque.values()
    assert opaque.reason == why
