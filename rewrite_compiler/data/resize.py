"""Resizing and cropping of images in integer arithmetic, so that every machine computes the same bits.

Resizing is bilinear: each pixel is a weighted mean of those under a triangle, which is as wide as the step when the image
shrinks; columns first, then rows, weights of 22 bits, each pass rounded. Pillow's BILINEAR is the same, where it takes
columns first, too, else at most 1 away.
"""

from __future__ import annotations

import numpy as np

from ..errors import InputError
from ..ir.program import Data
from .image_budgets import check_pixels

BITS = 22  # of a weight's fraction
Size = tuple[int, ...]  # the shorter side, or rows and columns


def resized(image: Data, size: Size) -> Data:
    """Return an image [rows, columns, channels] resized to other rows and columns; one number is the shorter side's."""
    rows, columns = resized_sides(image.shape, size)
    stretched = image if columns == image.shape[1] else _resized_rows(image.swapaxes(0, 1), columns).swapaxes(0, 1)
    return stretched if rows == image.shape[0] else _resized_rows(stretched, rows)


def cropped(image: Data, size: Size) -> Data:
    """Return the centre of an image; one number is both sides'."""
    rows, columns = cropped_sides(image.shape, size)
    top, left = round((image.shape[0] - rows) / 2), round((image.shape[1] - columns) / 2)
    return image[top : top + rows, left : left + columns]


def resized_sides(shape: Size, size: Size) -> Size:
    """Return rows and columns of a resized image.

    Raises:
        InputError: the result would have too many pixels.
    """
    shorter = min(shape[:2])
    sides = size if len(size) == 2 else tuple(size[0] if n == shorter else int(size[0] * n / shorter) for n in shape[:2])
    check_pixels(max(sides[0], shape[0]), sides[1])
    return sides


def cropped_sides(shape: Size, size: Size) -> Size:
    """Return rows and columns of an image's centre.

    Raises:
        InputError: the image is smaller than the crop.
    """
    rows, columns = (*size, *size)[:2]
    if rows > shape[0] or columns > shape[1]:
        raise InputError("C100", f"the image must have at least {rows}×{columns} pixels to be cropped, not {shape[0]}×{shape[1]}")
    return rows, columns


def _resized_rows(image: Data, count: int) -> Data:
    """Return an image with its rows resampled to `count`."""
    places, weights = _triangles(len(image), count)
    total = np.full((count, *image.shape[1:]), 1 << BITS - 1, np.int64)
    for k in range(places.shape[1]):
        total += image[places[:, k]].astype(np.int64) * weights[:, k, None, None]
    result: Data = np.clip(total >> BITS, 0, np.iinfo(image.dtype).max).astype(image.dtype)
    return result


def _triangles(old_count: int, new_count: int) -> tuple[Data, Data]:
    """Return the indices [new rows, taps] of the old rows under each new row's triangle, and their fixed-point weights."""
    step = old_count / new_count
    support = max(step, 1.0)
    windows = []
    for n in range(new_count):
        middle = (n + 0.5) * step
        low, high = max(int(middle - support + 0.5), 0), min(int(middle + support + 0.5), old_count)
        sizes = [max(0.0, 1 - abs((k - middle + 0.5) * (1 / support))) for k in range(low, high)]
        share = 1 / sum(sizes)
        windows.append((low, [int(0.5 + s * share * (1 << BITS)) for s in sizes]))
    most = max(len(w) for _, w in windows)
    weights = np.array([w + [0] * (most - len(w)) for _, w in windows], np.int64)
    places = np.minimum(np.array([low for low, _ in windows])[:, None] + np.arange(most), old_count - 1)
    return places, weights
