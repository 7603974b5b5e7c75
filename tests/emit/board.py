"""Generated C compiled with gcc and called through ctypes, as a test bench would."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed: generated C is neither compiled nor run")
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror")


def compiled(files: Mapping[str, bytes], folder: Path, *options: str) -> Path:
    """Write generated files and compile their sources to a shared library, every warning an error."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    sources = [name for name in files if name.endswith(".c")]
    return gcc(folder, *STRICT, *options, "-shared", "-fPIC", *sources, "-o", "board.so", "-lm") / "board.so"


def gcc(folder: Path, *arguments: str) -> Path:
    """Run the compiler in a folder; its complaints fail the test."""
    run = subprocess.run([str(GCC), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[:2000]
    assert run.stderr == ""
    return folder


class Board:
    """A device in a shared library."""

    def __init__(self, library: Path, name: str) -> None:
        self.library, self.name = ctypes.CDLL(str(library)), name
        new = self._function("new", ctypes.c_void_p)
        self.device = ctypes.c_void_p(new())

    def _function(self, verb: str, result: Any = ctypes.c_int) -> Any:
        found = getattr(self.library, f"{self.name}_{verb}")
        found.restype = result
        return found

    def write(self, address: int, data: int, flag: str = "") -> int:
        word = data.to_bytes(16, "little")
        return int(self._function(f"write128{flag}")(self.device, ctypes.c_uint64(address), word))

    def read(self, address: int, flag: str = "") -> int:
        data = ctypes.create_string_buffer(16)
        self.answer = int(self._function(f"read128{flag}")(self.device, ctypes.c_uint64(address), data))
        return int.from_bytes(data.raw, "little")

    def wait(self) -> int:
        return int(self._function("wait")(self.device))

    def reset(self) -> None:
        self._function("reset", None)(self.device)

    def attach(self, memory: str, words: Any, base: int = 0) -> None:
        place = words.ctypes.data_as(ctypes.c_void_p)
        self._function(f"attach_{memory}", None)(self.device, place, ctypes.c_int64(words.size), ctypes.c_uint64(base))

    def instruction(self, word: int) -> int:
        """Execute one instruction word of a stream."""
        return int(self._function("command")(self.device, word.to_bytes(16, "little"), None))

    @property
    def message(self) -> str:
        return str(self._function("message", ctypes.c_char_p)(self.device).decode())


def toy_text() -> str:
    """Return the accelerator of the tutorial."""
    page = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-accelerator.md"
    found = re.search(r"```python file=toy.py\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


# -- golden traces on a board: nothing, or what differs first


def flexasr_differs(board: Board, trace: Mapping[str, Any]) -> str:
    found = []
    for kind, *rest in trace["commands"]:
        if kind == "W":
            board.write(int(rest[0], 16), int(rest[1], 16))
        elif kind == "R":
            found.append([rest[0], f"{board.read(int(rest[0], 16)):032x}"])
        elif board.wait() != 0:
            return board.message
    wrong = next((n for n, (f, w) in enumerate(zip(found, trace["reads_hw"], strict=True)) if f != w), None)
    return "" if wrong is None else f"read {wrong} gives {found[wrong]}"


def hlscnn_differs(board: Board, trace: Mapping[str, Any], want: np.ndarray) -> str:
    for mode, address, data, virtual in trace["trace"]:
        if mode == "W":
            board.write(int(address, 16), int(data, 16), "_virtual" if virtual else "")
    for n, words in enumerate(want.tolist()):
        found = np.frombuffer(board.read(trace["spad1_base"] + 16 * n).to_bytes(16, "little"), "<i2").tolist()
        if found != words:
            return f"vector {n} of SPAD1 is {found}"
    return ""


def vta_differs(board: Board, trace: Mapping[str, Any], before: np.ndarray, after: np.ndarray) -> str:
    image = before.copy()
    board.attach("dram", image, trace["phys_base"])
    for word in trace["instructions_hex"]:
        if board.instruction(int(word, 16)) != 0:
            return board.message
    if board.wait() != 0:
        return board.message
    return "" if np.array_equal(image, after) else f"{int((image != after).sum())} bytes differ"
