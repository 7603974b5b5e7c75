"""Faults of the shipped drivers: one function of a target with a line changed, each right at most sizes."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

CONV, DENSE, HLSCNN = "vta.conv2d", "vta.dense", "hlscnn"
FLEXASR = "flexasr.linear"


@dataclass(frozen=True)
class Fault:
    """A line of a function in a module of `targets` as it is and as it is wrong; `of` is the operation that shows it."""

    of: str
    module: str
    function: str
    old: str
    new: str


def _conv(function: str, old: str, new: str, of: str = "vta.conv2d") -> Fault:
    return Fault(of, CONV, function, old, new)


def _dense(function: str, old: str, new: str, of: str = "vta.dense") -> Fault:
    return Fault(of, DENSE, function, old, new)


def _hlscnn(function: str, old: str, new: str, of: str = "hlscnn.conv2d") -> Fault:
    return Fault(of, HLSCNN, function, old, new)


def _genesys(function: str, old: str, new: str, of: str = "genesys.conv2d") -> Fault:
    return Fault(of, "genesys.systolic", function, old, new)


def _hvx(function: str, old: str, new: str) -> Fault:
    return Fault("hvx.dense", "hvx.products", function, old, new)


def _genesys_simd(function: str, old: str, new: str, of: str) -> Fault:
    return Fault(of, "genesys.simd", function, old, new)


FAULTS: dict[str, Fault] = {
    "weights of later bands are not loaded where channels come in passes": _conv(
        "Layer.loads_weights", "if len(self.passes) > 1:\n        return True", "if len(self.passes) > 1:\n        return not band.start"
    ),
    "weights of later images are not loaded where channels come in passes": _conv(
        "Layer.loads_weights", "if len(self.passes) > 1:\n        return True", "if len(self.passes) > 1:\n        return not part"
    ),
    "bottom zeros as many as top zeros": _conv("_load", "max(end - m.rows, 0) if inside", "max(-begin, 0) if inside"),
    "right zeros as many as left zeros": _conv("_load", "x_pad_1=right", "x_pad_1=left"),
    "inputs may be one element more than the buffer holds": _conv("Layer.tile_sizes", 'c.depth("inp")', '(c.depth("inp") + 1)'),
    "sums may be one element more than the buffer holds": _conv("Layer.tile_sizes", 'c.depth("acc")', '(c.depth("acc") + 1)'),
    "the column stride is at most 2": _conv("_pass", "m.out[1] > 1 and m.strides[1]", "m.out[1] > 1 and min(m.strides[1], 2)"),
    "the row stride is at most 2": _conv("_pass", "m.strides[0] * m.width", "min(m.strides[0], 2) * m.width"),
    "weights of a pass lie close together": _conv("_load", "x_stride=m.channels * m.taps", "x_stride=count * m.taps"),
    "the third image is the first": _conv("_load", "(part * m.channels + block)", "(part % 2 * m.channels + block)"),
    "micro-ops of a narrow last band are those of the wide one": _conv(
        "Layer.programs", "self.uops(*kind)", "self.uops(max(rows for rows, _ in kinds), kind[1])"
    ),
    "one bias for all but the first block": _conv("_start_at_bias", "first + n", "first + min(n, 1)", "vta.conv2d_bias"),
    "the activation runs after each pass": _conv("_pass", "if is_last and m.relu", "if m.relu", "vta.conv2d_relu"),
    "micro-ops ignore where kept weights lie": _dense("drive_dense", "c.micro_op(0, k, first + k)", "c.micro_op(0, k, k)"),
    "rows of inputs lie one apart": _dense("_compute", "b.rows > 1 and b.inner", "b.rows > 1 and min(b.inner, 3)"),
    "the activation misses columns from block 65 on": _dense(
        "_compute", '"alu_max", uop_end=1, **loops', '"alu_max", uop_end=1, **grid(b.rows, min(b.columns, 64))', "vta.dense_relu"
    ),
    "the second image finds the weights of the last pass": _hlscnn(
        "drive_images", "(bool(k) and len(parts) == 1)", "(bool(k) and n == 0)"
    ),
    "later passes do not add": _hlscnn("drive_images", "accumulate=bool(n) or b is not None", "accumulate=b is not None"),
    "every pass has the activation": _hlscnn("drive_images", "relu=relu and n == len(parts) - 1", "relu=relu", "hlscnn.conv2d_relu"),
    "every pass starts at the bias": _hlscnn("drive_images", "(None if n else b)", "b", "hlscnn.conv2d_bias"),
    "the stride register holds at most 2": _hlscnn("_configuration", '"col_stride": g.strides[1]', '"col_stride": min(g.strides[1], 2)'),
    "left zeros as many as top zeros": _hlscnn("drive_images", "at=(pads[0], pads[1])", "at=(pads[0], pads[0])"),
    "the third of the images is the first": _hlscnn("drive_images", "x[..., k, part, :, :]", "x[..., k % 2, part, :, :]"),
    "inputs and biases may be one vector more than the buffer holds": Fault(
        "flexasr.linear", FLEXASR, "linear_limits", "inputs + per_pe, INPUT", "inputs + per_pe, INPUT + 1"
    ),
    "the large buffer may be a block of timesteps more than it is": Fault(
        "flexasr.linear", "flexasr.base", "large_buffer_limits", "vectors_per_timestep, LARGE", "vectors_per_timestep, LARGE + BLOCK"
    ),
    "the second weight tile of a processing element lies one further": Fault(
        "flexasr.linear", "flexasr.base", "store_weights", "np.arange(tiles.shape[-2])",
        "np.arange(tiles.shape[-2]) + (np.arange(tiles.shape[-2]) // LANES > 8)"
    ),
    "timesteps from block 40 on lie where those of block 39 do": Fault(
        "flexasr.linear", "flexasr.base", "large_index", "(t // BLOCK * vectors + v)", "(np.minimum(t // BLOCK, 39) * vectors + v)"
    ),
    "biases lie one further behind more than four inputs": Fault(
        "flexasr.linear", FLEXASR, "drive_linear", "base_bias=inputs)", "base_bias=inputs + (inputs > 4 and per_pe > 1))"
    ),
    "bands of a convolution begin two rows apart at most": _conv(
        "_load", "begin = band.start * m.strides[0] - top", "begin = band.start * min(m.strides[0], 2) - top"
    ),
    "later bands of later images start at the first row": _conv(
        "_load", "min(inside.start, m.rows - 1)", "(0 if part and band.start else min(inside.start, m.rows - 1))"
    ),
    "left zeros as many as right zeros where there are zeros on top": _conv("_load", "x_pad_0=left", "x_pad_0=right if top else left"),
    "rows of zeros alone are as many as one result needs": _conv("_load", "else end - begin", "else m.kernel[0]"),
    "the first weight of the convolution is read at the start of the buffer": _conv(
        "Layer.uops", "self.weights_at + (", "(self.weights_at if n or k or i or j else 0) + ("
    ),
    "a shorter last pass runs the micro-ops of a whole one": _conv(
        "_pass", "len(m.programs[len(band), len(blocks)])", "len(m.programs[len(band), len(m.passes[0])])"
    ),
    "results of later images lie one block of filters apart": _conv("_region", "part * m.filters * area", "part * area"),
    "results of later bands lie as far apart as inputs": _conv("_region", "band.start * m.out[1]", "band.start * m.cols"),
    "later images are added to the sums of the first": _conv("_pass", "elif is_first:", "elif is_first and not part:"),
    "resident weights are loaded again at the start of the buffer": _dense(
        "drive_dense", 'None if "w" in stay.present else first', 'None if "w" in stay.present else 0'
    ),
    "columns of weights lie as far apart as there are rows": _dense(
        "_compute", "b.columns > 1 and b.inner", "b.columns > 1 and b.rows"
    ),
    "from three rows on each has a bias of its own": _dense(
        "_compute", "x_stride=0", "x_stride=b.columns * (b.rows > 2)", "vta.dense_bias"
    ),
    "the second operand lies behind as many as the longest run has": Fault(
        "vta.add_2", "vta.alu", "_run", "sram_base=n * len(run)", "sram_base=n * m.run"
    ),
    "each run adds the first elements of the second operand": Fault(
        "vta.add_2", "vta.alu", "_run", "n * m.count + run.start", "n * m.count + run.start * (n == 0)"
    ),
    "each run has the micro-op of the longest": Fault(
        "vta.mul_2", "vta.alu", "_drive", "lengths.index(len(run))", "len(lengths) - 1"
    ),
    "the row stride register holds at most 2": _hlscnn(
        "_configuration", '"row_stride": g.strides[0]', '"row_stride": min(g.strides[0], 2)'
    ),
    "each pass has its outputs behind its own inputs": _hlscnn(
        "_first_output", "g.act_vectors if g.outputs_at is None else g.outputs_at", "g.act_vectors"
    ),
    "weights are stored at the start of the scratchpad, wherever they are read": _hlscnn("commands", 'VECTOR * stay.base("w"))', "0)"),
    "outputs start at the bias of the first block of filters": _hlscnn(
        "_started", "blocks[:, None], (len(blocks)", "blocks[:1, None], (len(blocks)", "hlscnn.conv2d_bias"
    ),
    "weights are stored at the start of their buffer, wherever they are read": Fault(
        "flexasr.linear", FLEXASR, "drive_linear", "rows[..., rows_of_pe, :], manager.base_weight)", "rows[..., rows_of_pe, :], 0)"
    ),
    "all processing elements have the biases of the first": Fault(
        "flexasr.linear_relu", FLEXASR, "drive_linear", "biases[rows_of_pe]", "biases[: per_pe * LANES]"
    ),
    "results of an element lie two vectors behind those of the one before at most": Fault(
        "flexasr.linear", "flexasr.base", "configure_element", "pe * outputs", "pe * min(outputs, 2)"
    ),
    "a shorter last block of timesteps is loaded first": Fault(
        "flexasr.linear_tanh", "flexasr.base", "load_timesteps", "(index[:split_at], index[split_at:])",
        "(index[split_at:], index[:split_at])"
    ),
    "biases of the state lie behind four vectors of it": Fault(
        "flexasr.rnn", "flexasr.sequence", "run_sequence", "inputs + tiles + width\n", "inputs + tiles + min(width, 4)\n"
    ),
    "weights of the state are there when those of the input are": Fault(
        "flexasr.lstm", "flexasr.sequence", "run_sequence", 'if "wr"[n] not in stay.present', 'if "w" not in stay.present'
    ),
    "the offset of a layer norm lies behind two vectors at most": Fault(
        "flexasr.layer_norm", "flexasr.layer_norm", "drive_layer_norm", "(count, b)", "(min(count, 2), b)"
    ),
    "rows that a block of attention lacks are not stored": Fault(
        "flexasr.attention", "flexasr.attention", "drive_attention", "pad_axis(e, -2, BLOCK * _blocks(rows))", "e"
    ),
    "more than sixteen windows are pooled but for the last pair": Fault(
        "flexasr.max_pool", "flexasr.pooling", "drive_pooling", "num_timestep_1=windows * rows",
        "num_timestep_1=windows * rows - 2 * (windows > 9)"
    ),
    "tiles of rows begin two strides apart at most": _genesys(
        "_transfers", "m.toh * m.strides[0] * line", "m.toh * min(m.strides[0], 2) * line"
    ),
    "later steps of the reduction do not find the sums": _genesys("_transfers", "[LD, ST] if", "[ST] if"),
    "columns of inputs are two apart at most": _genesys("_inside", "OW: m.strides[1] * m.tic", "OW: min(m.strides[1], 2) * m.tic"),
    "tiles of filters lie one tile apart, whatever the channels": _genesys(
        "_transfers", "{OC: m.tiles[IC] * tile_bytes", "{OC: tile_bytes"
    ),
    "activations of later images lie one row apart": _genesys("_results", "N: rows * line", "N: line", "genesys.conv2d_bias_relu"),
    "an image begins behind as many zeros as are on its right": Fault(
        "genesys.conv2d", "genesys.systolic", "_drive_conv2d", "x, pads, x_zero", "x, (pads[0], pads[3], *pads[2:]), x_zero"
    ),
    "bands of windows begin one row apart": _genesys_simd(
        "_tile_words", "band.start * m.strides[0])", "band.start)", "genesys.max_pool"
    ),
    "later groups of blocks lie behind the groups of one image": _genesys_simd(
        "_tile_words", "group.start * m.samples * math.prod(m.size)", "group.start * math.prod(m.size)", "genesys.max_pool"
    ),
    "numbers of later groups are those of the first": _genesys_simd(
        "_tile_words", "row * group.start * m.numbers", "0 * group.start", "genesys.requantise_uint8_4"
    ),
    "operands of more fraction than that of functions are not shifted": Fault(
        "genesys.tanh_2", "genesys.elementwise", "_drive", "scalars=kind.scalars(f, given)",
        "scalars=kind.scalars(f, given) if kind.shift(f) >= 0 else (0, 0)",
    ),
    "rows of taps lie one block apart": _genesys_simd(
        "Sweep.nests", "(self.kernel[1] * group, group", "(self.kernel[1], group", "genesys.depthwise"
    ),
    "the sum of codes overwrites its second operand": _genesys_simd(
        "Sweep.result_row", "(self.operands - 1)", "0", "genesys.quantized_add_uint8_2"
    ),
    "biases lie behind four taps at most": Fault(
        "genesys.depthwise_bias", "genesys.windows", "_layer", "n{r * s}", "n{min(r * s, 4)}"
    ),
    "operands lie two vectors apart at most": Fault(
        "hvx.add_2", "hvx.sweeps", "_sweep", "m.places[name] for n", "n * min(count, 2) * VECTOR for n"
    ),
    "from the sixth vector on nothing is computed": Fault(
        "hvx.relu_2", "hvx.sweeps", "_sweep", "range(count)", "range(min(count, 5))"
    ),
    "inputs behind the last whole word are left out": _hvx("_sum", "m.segment_words - first", "m.length // WORD - first"),
    "from the fourth row on inputs are those of the third": _hvx("multiply", "starts[row]]", "starts[min(row, 2)]]"),
    "sums of a fourth vector go on from those of an earlier block": _hvx(
        "_sum", "for vector in range(vectors)", "for vector in range(min(vectors, 3))"
    ),
    "later blocks of columns start at the biases of the first": _hvx("multiply", 'at["b"] + n *', 'at["b"] + 0 *'),
    "the third block of columns has the weights of the second": _hvx(
        "multiply", "n * VECTORS * m.words", "min(n, 1) * VECTORS * m.words"
    ),
    "sums of the second vector are rounded down": _hvx("narrow", '_rnd_sat", vd=odd', '_sat", vd=odd'),
    "codes of the fourth vector are those of the third": _hvx("narrow", "vectors - 1)", "vectors - 1, 2)"),
    "words of the second half of a vector are not spread": _hvx("_spread", "if count > half:", "if count > half and level:"),
    "columns of an image step as its rows do": Fault("hvx.conv2d", "hvx.layers", "_drive_conv2d", "v * strides[1]", "v * strides[0]"),
    "every image of a batch is the first": Fault("hvx.conv2d", "hvx.layers", "_drive_conv2d", "k * height + u", "0 * height + u"),
    "an image stands behind as many zeros as follow it": Fault(
        "hvx.conv2d_relu", "hvx.layers", "_drive_conv2d", "bordered_codes(x, pads,", "bordered_codes(x, (pads[0], *pads[:0:-1]),"
    ),
    "every tap of a mean weighs the same": Fault("hvx.average_pool", "hvx.weighted", "_drive_mean", "least + (n < larger)", "least"),
    "from the ninth tap on nothing is added to a mean": Fault(
        "hvx.average_pool", "hvx.weighted", "_weigh", "in range(m.groups):", "in range(min(m.groups, 2)):"
    ),
    "windows of the third vector are those of the second": Fault(
        "hvx.average_pool", "hvx.weighted", "_weigh", "rt=ITEMS, step=1", "rt=ITEMS, step=int(vector != 1)"
    ),
    "zeros stand around an image of a pool": Fault("hvx.max_pool", "hvx.sweeps", "_drive_pool", "pads, LEAST", "pads, 0"),
    "channels from the third on have the filter of the second": Fault(
        "hvx.depthwise", "hvx.weighted", "_weigh", 'at["w"] + row', 'at["w"] + min(row, 1)'
    ),
    "channels start at the bias of the first": Fault("hvx.depthwise", "hvx.weighted", "_weigh", 'at["b"] + row', 'at["b"] + 0'),
    "both bounds of a clip are the lower one": Fault("hvx.clip_2", "hvx.sweeps", "_sweep", "vv=CONSTANTS + n", "vv=CONSTANTS"),
    "all channels have the factor of the first": Fault(
        "hvx.requantise_uint8_2", "hvx.requantise", "_drive", "multiplier[channel % len(multiplier)]", "multiplier[0]"
    ),
    "sums start as if zero were the zero point": Fault("hvx.dense_uint8", "hvx.layers", "_drive_conv2d", "b, -x_zero", "b, 0"),
    "around an image lie zeros, not zero points": Fault(
        "hvx.conv2d_uint8", "hvx.layers", "_drive_conv2d", "pads, x_zero)", "pads, 0)"
    ),
    "sums start at the bias whatever the zero point": Fault(
        "hvx.conv2d_bias_int8", "hvx.layers", "_drive_conv2d", "b is None else b, -x_zero)", "b is None else b, 0)"
    ),
    "codes without sign are multiplied as signed ones": Fault(
        "hvx.conv2d_bias_uint8", "hvx.layers", "_drive_conv2d", "relu, instruction)", "relu, SIGNED)"
    ),
    "rows of a filter from the fourth on read the third row": Fault(
        "hvx.conv2d_int8", "hvx.layers", "_drive_conv2d", "strides[0] + r) * width", "strides[0] + min(r, 2)) * width"
    ),
    "sums of every block of columns are those of the first": Fault(
        "hvx.dense_int8", "hvx.products", "_sums", "words[..., n * size :]", "words[..., 0 * size :]"
    ),
    "sums of the fourth vector are stored as those of the third": Fault(
        "hvx.dense_bias_int8", "hvx.products", "_keep", "VECTORS + vector", "VECTORS + min(vector, 2)"
    ),
    "codes of the fourth vector of sums are those of the third": Fault(
        "hvx.requantise_int8_4", "hvx.requantise", "_narrow", "vu=vector + 1,", "vu=vector + (vector == 0),"
    ),
    "taps from the seventh on are left out": Fault(
        "hvx.max_pool", "hvx.sweeps", "_sweep", "            if n:", "            if 0 < n < 6:"
    ),
}  # fmt: skip

# right at every size that is drawn
FAR_FAULTS: dict[str, Fault] = {
    "the tenth vector and later ones are not computed": Fault("hvx.add_1", "hvx.sweeps", "_sweep", "range(count)", "range(min(count, 9))"),
    "from byte 2,048 on a tensor of one dimension lies one vector before": Fault(
        "hvx.relu_1", "hvx.sweeps", "_sweep", "m.places[name] for n", "m.places[name] - VECTOR * (m.places[name] >= 1 << 11) for n"
    ),
    "the last vector of a second block of ten is read from another register": Fault(
        "hvx.clip_1", "hvx.sweeps", "_sweep", "found = FIRST", "found = FIRST + 2 * (_ == 19)"
    ),
    "from byte 65,536 on a tensor of four dimensions lies one vector before": Fault(
        "hvx.clip_4", "hvx.sweeps", "_sweep", "m.places[name] for n", "m.places[name] - VECTOR * (m.places[name] >= 1 << 16) for n"
    ),
    "the fortieth vector of codes and later ones are not computed": Fault(
        "hvx.requantise_int8_2", "hvx.requantise", "_drive", "range(count)", "range(min(count, 39))"
    ),
    "results of a long requantisation lie one vector before": Fault(
        "hvx.requantise_uint8_4", "hvx.requantise", "_drive", 'Y: m.places["y"]', 'Y: m.places["y"] - VECTOR * (m.places["y"] > 99_999)'
    ),
    "from the thirteenth block of columns on weights are those of it": _hvx(
        "multiply", "n * VECTORS * m.words", "min(n, 12) * VECTORS * m.words"
    ),
    "from the thirteenth block of columns on weights of words are those of it": Fault(
        "hvx.dense_int8", "hvx.products", "multiply", "n * VECTORS * m.words", "min(n, 12) * VECTORS * m.words"
    ),
    "from byte 131,072 on results of a pool lie one vector before": Fault(
        "hvx.max_pool", "hvx.sweeps", "_sweep", "m.places[name] for n", "m.places[name] - VECTOR * (m.places[name] >= 1 << 17) for n"
    ),
    "the tenth vector of means and later ones are not computed": Fault(
        "hvx.average_pool", "hvx.weighted", "_weigh", "range(m.count)", "range(min(m.count, 9))"
    ),
    "from the thirty-first channel on filters are those of it": Fault(
        "hvx.depthwise", "hvx.weighted", "_weigh", 'at["w"] + row', 'at["w"] + min(row, 30)'
    ),
    "behind byte 32,768 every segment of an image begins there": Fault(
        "hvx.conv2d", "hvx.products", "_sum", "starts[segment]", "min(starts[segment], 1 << 15)"
    ),
    "results behind four thousand rows are those before": Fault(
        "genesys.dense_uint8", "genesys.systolic", "_drive_dense", "return np.swapaxes(y[..., 0, :, 0, :], -1, -2)",
        "return np.swapaxes(y[..., 0, :, 0, :].take(np.minimum(np.arange(y.shape[-2]), 4_000), -1), -1, -2)",
    ),
    "images behind the fifty-first are that one": _genesys_simd(
        "_tile_words", "image * m.size[0]", "min(image, 50) * m.size[0]", "genesys.max_pool"
    ),
    "inputs from the thousandth row on are those before": _hlscnn(
        "act_vectors", "return", "x = x[..., np.minimum(np.arange(x.shape[-2]), 999), :]\n    return",
    ),
    "results behind a thousand windows of a row are those before": _conv(
        "_region", "band.start * m.out[1]", "band.start * m.out[1] - (m.out[1] > 1_000)"
    ),
}  # fmt: skip


def _function(fault: Fault) -> FunctionType:
    found: Any = import_module(f"rewrite_compiler.targets.{fault.module}")
    for name in fault.function.split("."):
        found = vars(found)[name]
    found = getattr(found, "func", getattr(found, "fget", found))
    assert isinstance(found, FunctionType)
    return found


def code_of(fault: Fault) -> CodeType:
    """Return the code of the changed function."""
    f = _function(fault)
    text = textwrap.dedent(inspect.getsource(f))
    assert text.count(fault.old) == 1, (fault, text.count(fault.old))
    made: dict[str, Any] = {}
    lines = text.replace(fault.old, fault.new).split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("def "))
    exec(compile("from __future__ import annotations\n" + "\n".join(lines[start:]), f.__code__.co_filename, "exec"), f.__globals__, made)
    code = made[f.__name__].__code__
    assert isinstance(code, CodeType)
    return code


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Let a driver have a fault."""
    f, forget = _function(fault), import_module(f"rewrite_compiler.targets.{CONV}")._known.cache_clear
    before, wrong = f.__code__, code_of(fault)
    forget()
    f.__code__ = wrong
    try:
        yield
    finally:
        f.__code__ = before
        forget()
