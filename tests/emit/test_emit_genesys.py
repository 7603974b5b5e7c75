"""The C model of GeneSys gives what the published programs give, and for other layers what integer numpy gives."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from board import Board, compiled, needs_gcc
from genesys_programs import SMALL, build, expected, operands, small, weight_bytes, words

from rewrite_compiler.emit.c.device_model import device_files
from rewrite_compiler.targets.genesys.systolic import Layer, layer_words

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The small and the published design, compiled once."""

    @cache
    def library(is_small: bool) -> Path:
        return compiled(device_files(small() if is_small else build()), tmp_path_factory.mktemp("genesys"), "-O0")

    return lambda is_small: Board(library(is_small), "genesys")


@pytest.mark.parametrize("relu", [False, True])
def test_layer(relu: bool, boards) -> None:  # type: ignore[no-untyped-def]
    m = Layer(SMALL, 2, 4, 2, (3, 3), (2, 3), tic=2, toc=1, toh=1, relu=relu)
    x, w, bias = operands(m, 11)
    board, out, simd = boards(True), np.zeros(m.bytes["obuf"], np.uint8), np.zeros(m.bytes["obuf"], np.uint8)
    param, ibuf = np.concatenate([bias.view(np.uint8), weight_bytes(m, w)]), x.reshape(-1).view(np.uint8).copy()
    for port, contents in {"param": param, "ibuf": ibuf, "obuf": out, "simd": simd}.items():
        board.attach(f"dram_{port}", contents)
    for word in words(small(), layer_words(m)):
        assert board.instruction(word) == 0, board.message
    assert np.array_equal((simd if relu else out).view(np.int32).reshape(2, 2, 3, -1), expected(m, x, w, bias))


@pytest.mark.shared
def test_published_programs(boards, shared_dir: Path) -> None:  # type: ignore[no-untyped-def]
    folder = shared_dir / "golden/genesys/recorded"
    add, conv = np.load(folder / "add/arrays.npz"), np.load(folder / "conv_relu/arrays.npz")
    simd = np.zeros(0x210000, np.uint8)
    simd[:8192], simd[0x100000:0x102000] = add["op1"].view(np.uint8), add["op2"].view(np.uint8)
    run(boards(False), folder / "add", {"simd": simd})
    assert np.array_equal(simd[0x200000:0x202000].view(np.int32), add["out"])
    param, ibuf, simd = np.zeros(28672, np.uint8), np.zeros(0x410000 + 9216, np.uint8), np.zeros(0x400000 + 36864, np.uint8)
    param[24576:], param[4096:4352] = conv["weight_words"].view(np.uint8), conv["bias"].view(np.uint8)
    ibuf[0x410000:] = conv["data_words"].view(np.uint8)
    run(boards(False), folder / "conv_relu", {"param": param, "ibuf": ibuf, "simd": simd})
    assert np.array_equal(simd[0x400000:].view(np.int32), conv["out_nhwc"])


def run(board: Board, folder: Path, ports: dict[str, np.ndarray]) -> None:
    for port, contents in ports.items():
        board.attach(f"dram_{port}", contents)
    for line in (folder / "program.binary.txt").read_text().split():
        assert board.instruction(int(line, 2)) == 0, board.message
