"""Shapes of outputs and of what they are compared with: the sample axis is the first one, axes of extent 1 do not count."""

from __future__ import annotations

from ...errors import InputError
from ...ir.program import Data

Shape = tuple[int, ...]


def shape_text(x: Data) -> str:
    """Return the shape of an array as refusals show it, the sample axis by its name."""
    return sample_text(x.shape[1:])


def sample_text(shape: Shape) -> str:
    """Return the shape of an array of samples of a shape."""
    return f"[{', '.join(map(str, ('samples', *shape)))}]"


def without_unit_axes(shape: Shape) -> Shape:
    """Return a shape without the axes of extent 1."""
    return tuple(n for n in shape if n != 1)


def is_same_sample(first: Data, second: Data) -> bool:
    """Tell whether samples of two arrays have the same values in the same order: of one shape, or one of them is a vector."""
    a, b = (without_unit_axes(x.shape[1:]) for x in (first, second))
    return a == b or (first.size == second.size and min(len(a), len(b)) < 2)


def order_help(first: Data, second: Data) -> str | None:
    """Return how to make the samples of a second array fit those of the first; None where it has other numbers of values."""
    a, b = first.shape[1:], second.shape[1:]
    if sorted(without_unit_axes(a)) == sorted(without_unit_axes(b)):
        return f"transpose them to {sample_text(a)}: the axes behind the samples are in another order"
    if first.size == second.size:
        return f"reshape them to {sample_text(a)}, if their values are in that order"
    return None


def class_scores(outputs: Data) -> Data:
    """Return outputs as scores of classes [samples, classes].

    Raises:
        InputError: C100, an output has more axes than one of classes.
    """
    if len(without_unit_axes(outputs.shape[1:])) > 1:
        sentence = f"outputs of this metric must be one score a class, [samples, classes], not {shape_text(outputs)}"
        raise InputError("C100", sentence, help="--metric pixel-accuracy and mean-iou score a class for each place of an output")
    return outputs.reshape(len(outputs), -1)
