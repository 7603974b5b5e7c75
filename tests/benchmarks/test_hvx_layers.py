"""The packets that the benchmarks count are legal, and compute what the driver's code computes one instruction after the other."""

from __future__ import annotations

import subprocess
import sys

from house import ROOT

CODE = """
import numpy as np
from hvx_ablation import iterations, scalar_program
from hvx_layers import FORMATS, Program, find_target, packets
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila_models.hvx.sequence import SEQUENCE
from rewrite_compiler.target import simulated_device

target = find_target("hvx")
ila, draw = target.ila(), np.random.default_rng(8)


class Packed(Program):
    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def attach(self, memory, words):
        self.device = ila.simulator(dram=np.zeros(words, np.uint8), strict=True)

    def place(self, memory, address, words):
        self.device.place(memory, address, words)

    def fetch(self, memory, address, count):
        return self.device.fetch(memory, address, count)[0]

    def wait(self):
        self.packed = [members for part in self.parts(self.issued[:-1]) for members in packets(part)]
        run(self.device, self.packed)


def run(device, packed):
    for members in packed:
        commands = [assemble(ila.instructions[name], **operands)["data"] for name, operands in members]
        device.issue_packet([*commands, SEQUENCE["advance"] << 64 | 4])


for name, statics in (("dense_relu", {}), ("conv2d", {"strides": (1, 2), "pads": (1, 0, 0, 0)})):
    shapes = {"x": (3, 9), "w": (70, 9), "b": (70,)} if not statics else {"x": (1, 5, 2, 4), "w": (40, 5, 2, 2), "b": (40,)}
    codes = {n: draw.integers(-128, 128, s).astype(np.int32 if n == "b" else np.int8) for n, s in shapes.items()}
    mapping = target.mappings[name]
    expected, counts = mapping.run_driver(simulated_device(ila), codes, FORMATS, statics), []
    for parts in (iterations, lambda program: [program]):
        device = Packed(parts)
        y = mapping.run_driver(device, codes, FORMATS, statics)
        assert np.any(expected) and np.array_equal(y, expected), name
        counts.append(len(device.packed))
    print(*counts, len(device.issued))

words = draw.integers(-128, 128, 2 * 9 + 1).astype(np.int32)
memory = np.concatenate([words, [0]]).astype(np.int32)
device, program = ila.simulator(dram=memory.view(np.uint8), strict=True), scalar_program(9)
places = {2: 0, 3: 4 * 9, 5: 4 * 18, 6: 4 * 19}
run(device, [[("transfer_imm", {"rd": r, "imm_low": at, "imm_mid": 0, "imm": 0})] for r, at in places.items()])
run(device, [[one] for one in program])
assert memory[-1] == words[:9] @ words[9:18] + words[18]
"""


def test_packets_compute_what_single_instructions_do() -> None:
    made = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    for line in made.stdout.splitlines():
        by_iterations, packed, single = map(int, line.split())
        assert 1.05 * packed < by_iterations < single / 1.15


def test_every_step_gains_on_hvx() -> None:
    """The least of all where there is one column, as in the paper."""
    code = "import hvx_ablation as a; print(*(f'{r[n]}' for r in map(a.measure, a.LAYERS[8:10]) for n in (*a.GAINS, 'gain')))"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    gains = [float(x) for x in made.stdout.split()]
    assert min(gains) > 1
    assert gains[7] < gains[3]


def test_layers_are_simulated_to_the_results_of_integer_numpy() -> None:
    """A product of an odd row, one of two rows at a time, a convolution with a border; a wrong bias is noticed."""
    code = """
import numpy as np
import hvx_layers as h
from covenant_layers import Layer, dense

layers = dense("odd", 1, 37, 5), dense("even", 6, 130, 140), Layer("border", 3, 33, (9, 9), 3, 2, 1)
for layer in layers:
    assert h.simulate(layer)[1], layer.name
product = h.simulated_product
h.simulated_product = lambda layer, x, w, b, f: product(layer, x, w, b + 4096, f)
assert not h.simulate(layers[1])[1]
"""
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
