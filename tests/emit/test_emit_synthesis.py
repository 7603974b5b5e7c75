"""Generated Verilog goes through Yosys: no latch, no word with several drivers, and large memories with one port of each kind."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import icarus
import pytest
from board import toy_text
from test_emit_memory import sums

from rewrite_compiler.emit.rtl.design import design
from rewrite_compiler.emit.rtl.emit import verilog_device
from rewrite_compiler.ila import Ila
from rewrite_compiler.target import load_target


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("toy") / "toy.py"
    path.write_text(toy_text(), "utf-8")
    return load_target(str(path))


def yosys(script: str, folder: Path) -> str:
    """Return what Yosys says to a script."""
    done = subprocess.run(["yosys", "-p", script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def written(m: Ila, folder: Path) -> None:
    for name, data in verilog_device(m, "device").files.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("name", ["small", "tutorial"])
def test_no_latch_and_no_word_with_two_drivers(name: str, toy: Any, tmp_path: Path) -> None:
    icarus.synthesis_needed()
    m = sums() if name == "small" else toy.ila()
    written(m, tmp_path)
    said = yosys("read_verilog -sv device_device.v; synth; check -assert; stat", tmp_path)
    assert "Latch inferred" not in said
    assert "multiple conflicting drivers" not in said
    cells = said[said.rindex("Printing statistics") :]
    assert int(re.findall(r"device_memory +(\d+)", cells)[0]) == len(design(m).ports) == 3
    assert "$_DLATCH" not in cells


def test_a_latch_is_found(tmp_path: Path) -> None:
    """What the test above looks for is what Yosys says to a word that keeps its value outside of a clock."""
    icarus.synthesis_needed()
    (tmp_path / "latch.v").write_text("module latch(input a, input b, output reg q); always @* if (a) q = b; endmodule")
    said = yosys("read_verilog latch.v; synth; stat", tmp_path)
    assert "Latch inferred" in said
    assert "$_DLATCH" in said[said.rindex("Printing statistics") :]


def test_large_memories_have_one_read_port_and_one_write_port(tmp_path: Path) -> None:
    icarus.synthesis_needed()
    written(sums(), tmp_path)
    yosys(
        "read_verilog -sv -D WITH_MEMORIES device_device.v; hierarchy -top device_device; proc; opt; memory -nomap; write_rtlil m.il",
        tmp_path,
    )
    text = (tmp_path / "m.il").read_text()
    found = re.findall(r"parameter \\RD_PORTS (\d+).*?parameter \\SIZE (\d+).*?parameter \\WR_PORTS (\d+)", text, re.DOTALL)
    large = [(int(size), int(reads), int(writes)) for reads, size, writes in found if int(size) > 32]
    assert large == [(64, 1, 1), (64, 1, 1)]  # a module for two memories that start at 0, and one for that of values on the way
