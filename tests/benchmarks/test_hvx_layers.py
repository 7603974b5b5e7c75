"""The packets that the benchmark counts are legal, and compute what the driver's code computes one instruction after the other."""

from __future__ import annotations

import subprocess
import sys

from house import ROOT

CODE = """
import numpy as np
from hvx_layers import FORMATS, Program, find_target, packets
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila_models.hvx.sequence import SEQUENCE
from rewrite_compiler.target import simulated_device

target = find_target("hvx")
ila, draw = target.ila(), np.random.default_rng(8)


class Packed(Program):
    def attach(self, memory, words):
        self.device = ila.simulator(dram=np.zeros(words, np.uint8), strict=True)

    def place(self, memory, address, words):
        self.device.place(memory, address, words)

    def fetch(self, memory, address, count):
        return self.device.fetch(memory, address, count)[0]

    def wait(self):
        self.packed = packets(self.issued[:-1])
        for members in self.packed:
            commands = [assemble(ila.instructions[name], **operands)["data"] for name, operands in members]
            self.device.issue_packet([*commands, SEQUENCE["advance"] << 64 | 4])


for name, statics in (("dense_relu", {}), ("conv2d", {"strides": (1, 2), "pads": (1, 0, 0, 0)})):
    shapes = {"x": (3, 9), "w": (70, 9), "b": (70,)} if not statics else {"x": (1, 5, 2, 4), "w": (40, 5, 2, 2), "b": (40,)}
    codes = {n: draw.integers(-128, 128, s).astype(np.int32 if n == "b" else np.int8) for n, s in shapes.items()}
    mapping, device = target.mappings[name], Packed()
    expected = mapping.run_driver(simulated_device(ila), codes, FORMATS, statics)
    y = mapping.run_driver(device, codes, FORMATS, statics)
    assert np.any(expected) and np.array_equal(y, expected), name
    print(len(device.packed), len(device.issued))
"""


def test_packets_compute_what_single_instructions_do() -> None:
    made = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    for line in made.stdout.splitlines():
        packed, issued = map(int, line.split())
        assert 1.3 * packed < issued
