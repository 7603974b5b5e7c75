"""Lowerings of operators that only move data, and of those that leave no operation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...ir.program import Value
from ...ir.types import TensorType
from ...ops import OPS
from ...ops.elementwise import broadcast
from ...ops.op import ShapeError
from ..file.tensors import DTYPES
from ..site.constant_folding import out_of_range
from ..site.context import Unsupported
from ..site.site import Lowering, Site

PAD_MODES: tuple[Literal["reflect", "edge", "wrap"], ...] = ("reflect", "edge", "wrap")


def _axes(site: Site, declared: Sequence[int], rank: int) -> tuple[int, ...]:
    axes = tuple(a + rank if a < 0 else a for a in declared)
    if len(set(axes)) != len(axes) or any(not 0 <= a < rank for a in axes):
        raise ShapeError(f"Axes of {site.op} must be different and in {-rank}…{rank - 1}, not {tuple(declared)}")
    return axes


def _one_axis(site: Site, default: int, rank: int) -> int:
    return _axes(site, (int(site.get("axis", default)),), rank)[0]


def _ints_or_one(site: Site, n: int, subject: str) -> tuple[int, ...]:
    """Return a constant operand that should be a list and that onnxruntime takes as a single number, too."""
    data = site.required_data(n, subject)
    return (int(data),) if data.ndim == 0 else site.ints(n, subject)


def _identity(site: Site) -> list[Value]:
    return [site.value(0)]


def _dropout(site: Site) -> list[Value | None]:
    if site.has(2) and np.asarray(site.required_data(2, "mode")).any():
        raise Unsupported("it is in training mode")
    if any(site.outputs[1:]):
        mask = np.broadcast_to(np.asarray(True), site.shape(0))
        return [site.value(0), site.constant(mask, "mask")]
    return [site.value(0), None]


def _cast(site: Site) -> list[Value]:
    target = DTYPES.get(int(site.get("to", 0)), "an unknown type")
    if target != site.type(site.value(0)).dtype:
        raise Unsupported(f"it casts {site.type(site.value(0)).dtype} to {target}")
    return [site.value(0)]


def _cast_like(site: Site) -> list[Value]:
    if site.type(site.value(0)).dtype != site.type(site.value(1)).dtype:
        raise Unsupported("it casts to another type")
    return [site.value(0)]


def _constant(site: Site) -> list[Value]:
    a = site.attributes
    if "value" in a:
        data, dtype = site.context.tensor(a["value"], f'the value of Constant "{site.name}"')
        return [site.context.weight(data, site.name, dtype)]
    dtypes = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, dtype_ in dtypes.items():
        if name in a:
            return [site.context.constant(np.asarray(a[name], dtype_), site.name)]
    raise Unsupported("its value is text or sparse")


def _shape(site: Site) -> list[Value]:
    shape = site.shape(0)
    start, end = (_clamped(n, len(shape)) for n in (site.get("start", 0), site.get("end", len(shape))))
    return [site.constant(np.asarray(shape[start:end], np.int64), "shape")]


def _clamped(n: int, size: int) -> int:
    return min(max(n + size if n < 0 else n, 0), size)


def _size(site: Site) -> list[Value]:
    return [site.constant(np.asarray(math.prod(site.shape(0)), np.int64), "size")]


def _reshape(site: Site) -> list[Value]:
    site.require_native()
    old, extents = site.shape(0), list(site.ints(1, "extents"))
    if any(n < -1 for n in extents) or extents.count(-1) > 1:
        raise ShapeError(f"Extents of Reshape must be positive, 0 or one −1, not {extents}")
    if not site.flag("allowzero"):
        if any(n == 0 and i >= len(old) for i, n in enumerate(extents)):
            raise ShapeError(f"A 0 of Reshape copies an extent of {old}, which has none at that place: {extents}")
        extents = [old[i] if n == 0 else n for i, n in enumerate(extents)]
    elif 0 in extents and -1 in extents:
        raise ShapeError(f"Reshape with allowzero takes a 0 or a −1, not both: {extents}")
    return [site.reshape(site.value(0), _completed(old, extents))]


def _completed(old: Sequence[int], extents: list[int]) -> list[int]:
    if -1 not in extents:
        return extents
    known_size = -math.prod(extents)
    if known_size == 0 or math.prod(old) % known_size:
        raise ShapeError(f"Reshape cannot make {extents} from the {math.prod(old)} elements of {tuple(old)}")
    return [math.prod(old) // known_size if n == -1 else n for n in extents]


def _flatten(site: Site) -> list[Value]:
    site.require_native()
    shape = site.shape(0)
    axis = int(site.get("axis", 1))
    if not -len(shape) <= axis <= len(shape):
        raise ShapeError(f"axis of Flatten must be in {-len(shape)}…{len(shape)}, not {axis}")
    axis += len(shape) if axis < 0 else 0
    return [site.reshape(site.value(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))]


def _squeeze(site: Site) -> list[Value]:
    site.require_native()
    shape = site.shape(0)
    declared = site.ints(1, "axes") if site.has(1) else site.get("axes", None)
    axes = _axes(site, declared, len(shape)) if declared is not None else tuple(a for a, n in enumerate(shape) if n == 1)
    wide = [a for a in axes if shape[a] != 1]
    if wide:
        raise ShapeError(f"Squeeze drops axes of extent 1; axis {wide[0]} of {shape} has {shape[wide[0]]}")
    return [site.reshape(site.value(0), [n for a, n in enumerate(shape) if a not in axes])]


def _unsqueeze(site: Site) -> list[Value]:
    site.require_native()
    declared = _ints_or_one(site, 1, "axes") if site.has(1) else tuple(site.get("axes", ()))
    rank = site.rank(0) + len(declared)
    axes, old = set(_axes(site, declared, rank)), iter(site.shape(0))
    return [site.reshape(site.value(0), [1 if a in axes else next(old) for a in range(rank)])]


def _transpose(site: Site) -> list[Value]:
    site.require_native()
    rank = site.rank(0)
    perm = tuple(site.get("perm", ()) or reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise ShapeError(f"Permutation of Transpose must name each of the {rank} axes once, not {perm}")
    return [site.transpose(site.value(0), perm)]


def _concat(site: Site) -> list[Value]:
    site.require_native()
    values, axis = site.values(), _one_axis(site, 0, site.rank(0))
    OPS["concat"].shapes([site.type(v).shape for v in values], {"axis": axis})
    nonempty = [v for v in values if site.type(v).shape[axis]] or values[:1]
    return [nonempty[0] if len(nonempty) == 1 else site.apply("concat", *nonempty, axis=axis)]


def _split(site: Site) -> list[Value]:
    site.require_native()
    axis = _one_axis(site, 0, site.rank(0))
    extent = site.shape(0)[axis]
    sizes = site.ints(1, "sizes") if site.has(1) else tuple(site.get("split", ())) or _equal_parts(site, extent)
    if sum(sizes) != extent or any(n < 0 for n in sizes) or len(sizes) < len(site.outputs):
        raise ShapeError(f"Sizes of Split must add up to the {extent} elements of axis {axis}, not {sizes}")
    ends = np.cumsum(sizes)
    parts = zip(ends - np.asarray(sizes), ends, strict=True)
    return [site.apply("slice", site.value(0), axis=axis, start=int(a), stop=int(b), step=1) for a, b in parts]


def _equal_parts(site: Site, extent: int) -> tuple[int, ...]:
    count = int(site.get("num_outputs", len(site.outputs)))
    if count != len(site.outputs):
        raise ShapeError(f"num_outputs of Split must be its {len(site.outputs)} results, not {count}")
    if not 1 <= count <= extent:
        raise ShapeError(f"num_outputs of Split must be 1 to the {extent} elements of its axis, not {count}")
    size = -(-extent // count)
    return tuple(min(size, max(0, extent - n * size)) for n in range(count))


def _slice(site: Site) -> list[Value]:
    site.require_native()
    x, shape = site.value(0), site.shape(0)
    starts, ends = site.ints(1, "starts"), site.ints(2, "ends")
    axes = _axes(site, site.ints(3, "axes") if site.has(3) else range(len(starts)), len(shape))
    steps = site.ints(4, "steps") if site.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError(f"Slice needs one start, end and step an axis, not {len(starts)}, {len(ends)} and {len(steps)} for {len(axes)}")
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        x = _slice_axis(site, x, axis, shape[axis], (start, end, step))
    return [x]


def _slice_axis(site: Site, x: Value, axis: int, extent: int, bounds: tuple[int, int, int]) -> Value:
    start, end, step = bounds
    if step == 0:
        raise ShapeError("Steps of Slice must not be 0")
    if step == np.iinfo(np.int64).min:  # its opposite is no step: onnxruntime takes an element that is not asked for
        raise ShapeError(f"Steps of Slice must be greater than {step}, not {step}")
    if step < 0:
        last = extent - 1
        first = min(_clamped(start, extent), last)
        stop = min(max(end + extent if end < 0 else end, -1), last)
        return site.gather(x, range(first, stop, step), axis)
    start, end = _clamped(start, extent), _clamped(end, extent)
    if (start, end, step) == (0, extent, 1):
        return x
    return site.apply("slice", x, axis=axis, start=start, stop=max(start, end), step=step)


def _pad(site: Site) -> list[Value]:
    site.require_native()
    rank = site.rank(0)
    mode = site.get("mode", "constant")
    declared_pads = site.ints(1, "pads") if site.has(1) else tuple(site.get("pads", ()))
    value = site.scalar(2, "value", site.get("value", 0.0))
    axes = _axes(site, site.ints(3, "axes"), rank) if site.has(3) else tuple(range(rank))
    if len(declared_pads) != 2 * len(axes):
        raise ShapeError(f"Pad over {len(axes)} axes needs {2 * len(axes)} pads, not {len(declared_pads)}")
    pads = [0] * 2 * rank
    for n, axis in enumerate(axes):
        pads[axis], pads[axis + rank] = declared_pads[n], declared_pads[n + len(axes)]
    return [_padded(site, pads, value) if mode == "constant" else _padded_from_itself(site, pads, mode)]


def _padded(site: Site, pads: list[int], value: float) -> Value:
    x, rank = site.value(0), site.rank(0)
    if value and not math.isfinite(value):
        raise Unsupported(f"it pads with {value}")
    for axis, extent in enumerate(site.shape(0)):
        before, after = min(pads[axis], 0), min(pads[axis + rank], 0)
        if extent + pads[axis] + pads[axis + rank] < 0:
            raise ShapeError(f"Pads of {site.op} cannot take {-before - after} elements from the {extent} of axis {axis}")
        if extent + before + after < 0:
            raise Unsupported("it takes away more elements than there are before it adds some")
        if before or after:
            x = site.apply("slice", x, axis=axis, start=-before, stop=extent + after, step=1)
    positive = tuple(max(p, 0) for p in pads)
    return site.apply("pad", x, pads=positive, value=value) if any(positive) else x


def _padded_from_itself(site: Site, pads: list[int], mode: str) -> Value:
    """Pad with elements of the tensor: its edges, its mirror image without the edge, or its other end."""
    numpy_mode = next((m for m in PAD_MODES if m == mode), None)
    if numpy_mode is None:
        raise Unsupported(f"its mode is {mode}")
    if min(pads, default=0) < 0:
        raise Unsupported(f"its mode is {mode} and it takes elements away")
    x, rank = site.value(0), site.rank(0)
    for axis, extent in enumerate(site.shape(0)):
        before, after = pads[axis], pads[axis + rank]
        if mode == "reflect" and max(before, after) >= extent:
            raise ShapeError(f"Pad may reflect at most {extent - 1} elements of axis {axis} of {site.shape(0)}, not {max(before, after)}")
        if before or after:
            x = site.gather(x, [int(n) for n in np.pad(np.arange(extent), (before, after), mode=numpy_mode)], axis)
    return x


def _tile(site: Site) -> list[Value]:
    """Lower repetitions of a tensor along its axes to an expansion of new axes before them."""
    site.require_native()
    shape, repeats = site.shape(0), site.ints(1, "repeats")
    if len(repeats) != len(shape) or any(n < 0 for n in repeats):
        raise ShapeError(f"Repeats of Tile must be one number from 0 on for each of the {len(shape)} axes, not {repeats}")
    result = tuple(n * r for n, r in zip(shape, repeats, strict=True))
    site.context.check(TensorType(result, site.type(site.value(0)).dtype), site.name)
    split = [part for n, r in zip(shape, repeats, strict=True) for part in ((1, n) if r != 1 else (n,))]
    wide = [part for n, r in zip(shape, repeats, strict=True) for part in ((r, n) if r != 1 else (n,))]
    x = site.reshape(site.value(0), split)
    return [site.reshape(x if split == wide else site.apply("expand", x, shape=tuple(wide)), result)]


def _expand(site: Site) -> list[Value]:
    site.require_native()
    operand_shape, target = site.shape(0), _ints_or_one(site, 1, "extents")
    if any(n < 0 for n in target):
        raise ShapeError(f"Extents of Expand must not be negative, not {target}")
    shape = broadcast(operand_shape, target)
    return [site.value(0) if shape == operand_shape else site.apply("expand", site.value(0), shape=shape)]


def _gather(site: Site) -> list[Value]:
    site.require_native()
    x, shape = site.value(0), site.shape(0)
    axis = _one_axis(site, 0, len(shape))
    indices = site.data(1)
    if indices is not None and indices.size and (indices.min() < -shape[axis] or indices.max() >= shape[axis]):
        raise out_of_range(indices, shape[axis], site)
    if indices is None or indices.size != 1:
        places = None if indices is None or indices.ndim != 1 else [int(n) % shape[axis] for n in indices]
        return [site.apply("gather", x, site.value(1), axis=axis) if places is None else site.gather(x, places, axis)]
    place = int(indices.reshape(-1)[0]) % shape[axis]
    element = site.apply("slice", x, axis=axis, start=place, stop=place + 1, step=1)
    return [site.reshape(element, (*shape[:axis], *indices.shape, *shape[axis + 1 :]))]


def _reverse_sequence(site: Site) -> list[Value]:
    site.require_native()
    x, shape, lengths = site.value(0), site.shape(0), site.data(1)
    time, batch = int(site.get("time_axis", 0)), int(site.get("batch_axis", 1))
    if {time, batch} != {0, 1} or len(shape) <= 1:
        raise ShapeError(f"time_axis and batch_axis of ReverseSequence must be 0 and 1 in any order, not {time} and {batch}")
    if lengths is None or lengths.shape != (shape[batch],):
        raise Unsupported("its sequence_lens are not known")
    if any(int(n) != shape[time] for n in lengths):
        raise Unsupported("it reverses some sequences in part")
    return [site.gather(x, range(shape[time] - 1, -1, -1), time)]


def _constant_of_shape(site: Site) -> list[Value]:
    shape, value = site.ints(0, "extents"), site.attributes.get("value")
    if any(n < 0 for n in shape):
        raise ShapeError(f"Extents of ConstantOfShape must not be negative, not {shape}")
    if value is None:
        return [site.apply("full", shape=shape, value=0.0)]
    data, dtype = site.context.tensor(value, "the value of ConstantOfShape")
    if dtype != "float32" or data.size != 1 or not np.isfinite(data).all():
        raise Unsupported(f"it fills with {dtype}")
    return [site.apply("full", shape=shape, value=float(data.reshape(-1)[0]))]


def _depth_to_space(site: Site) -> list[Value]:
    site.require_native()
    n, c, h, w = _image(site)
    block = int(site.get("blocksize", 0))
    if block < 1 or c % (block * block):
        raise ShapeError(f"blocksize of DepthToSpace must be positive and its square divide {c} channels, not {block}")
    is_depth_first = site.get("mode", "DCR") == "DCR"
    split = (n, block, block, c // block**2, h, w) if is_depth_first else (n, c // block**2, block, block, h, w)
    permuted = site.transpose(site.reshape(site.value(0), split), (0, 3, 4, 1, 5, 2) if is_depth_first else (0, 1, 4, 2, 5, 3))
    return [site.reshape(permuted, (n, c // block**2, h * block, w * block))]


def _space_to_depth(site: Site) -> list[Value]:
    site.require_native()
    n, c, h, w = _image(site)
    block = int(site.get("blocksize", 0))
    if block < 1 or h % block or w % block:
        raise ShapeError(f"blocksize of SpaceToDepth must be positive and divide {h} and {w}, not {block}")
    split = site.reshape(site.value(0), (n, c, h // block, block, w // block, block))
    return [site.reshape(site.transpose(split, (0, 3, 5, 1, 2, 4)), (n, c * block**2, h // block, w // block))]


def _image(site: Site) -> tuple[int, ...]:
    if site.rank(0) != 4:
        raise ShapeError(f"{site.op} needs x[N, C, H, W], not {site.shape(0)}")
    return site.shape(0)


TABLE: dict[str, Lowering] = {
    "Identity": _identity,
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Constant": _constant,
    "Shape": _shape,
    "Size": _size,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Tile": _tile,
    "Expand": _expand,
    "Gather": _gather,
    "ReverseSequence": _reverse_sequence,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
