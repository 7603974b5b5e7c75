"""Generated Verilog goes through Yosys: no latch, no word with several drivers, and large memories with one port of each kind."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import icarus
import pytest
from board import toy_text

from rewrite_compiler.emit.rtl.design import design
from rewrite_compiler.emit.rtl.emit import verilog_device
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


def written(toy: Any, folder: Path) -> None:
    for name, data in verilog_device(toy.ila(), "toy").files.items():
        (folder / name).write_bytes(data)


def test_the_accelerator_of_the_tutorial_is_synthesised(toy: Any, tmp_path: Path) -> None:
    icarus.synthesis_needed()
    written(toy, tmp_path)
    said = yosys("read_verilog -sv toy_device.v; synth; check -assert; stat", tmp_path)
    assert "Latch inferred" not in said
    assert "multiple conflicting drivers" not in said
    cells = said[said.rindex("Printing statistics") :]
    assert int(re.findall(r"toy_memory +(\d+)", cells)[0]) == len(design(toy.ila()).ports) == 3
    assert "$_DLATCH" not in cells


def test_large_memories_have_one_read_port_and_one_write_port(toy: Any, tmp_path: Path) -> None:
    icarus.synthesis_needed()
    written(toy, tmp_path)
    yosys("read_verilog -sv -D WITH_MEMORIES toy_device.v; hierarchy -top toy_device; proc; opt; memory -nomap; write_rtlil m.il", tmp_path)
    text = (tmp_path / "m.il").read_text()
    found = re.findall(r"parameter \\RD_PORTS (\d+).*?parameter \\SIZE (\d+).*?parameter \\WR_PORTS (\d+)", text, re.DOTALL)
    ports = {int(size): (int(reads), int(writes)) for reads, size, writes in found}
    assert {size: ports[size] for size in ports if size >= 512} == {512: (1, 1), 4096: (1, 1)}
