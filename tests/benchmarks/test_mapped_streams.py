"""The benchmark of mapped cycles: a stream whose cycles are known by hand, and parts that add up to the event model."""

from __future__ import annotations

import subprocess
import sys

from house import ROOT

CODE = """
from mapped_streams import CASES, find_target, row, vta_cycles

vta = find_target("vta")
issued = [
    ("load_inp", {"y_size": 1, "x_size": 16, "push_next": 1}),  # 256 bytes at 8 a cycle
    ("gemm", {"reset": 1, "uop_end": 1, "iter_out": 4, "iter_in": 4}),
    ("gemm", {"uop_end": 2, "iter_out": 4, "iter_in": 4, "pop_prev": 1, "push_next": 1}),
    ("store", {"y_size": 1, "x_size": 16, "pop_prev": 1}),
]
parts = vta_cycles(vta, vta.mappings["dense"], issued)
assert {name: n for name, n in parts.items() if n} == {
    "starts and epilogues": 16, "waits: l2g (the token is not there)": 16, "products": 32, "last stores": 32,
}, parts
for name in ("vta", "hlscnn", "genesys"):
    found = row(find_target(name), "3 x 3", "conv", ((1, 32, 10, 10), (32, 32, 3, 3)), 1)
    assert sum(found["named"].values()) == found["events"] >= found["mapping"] > 0, found
    assert found["is_near"] or found["is_explained"], found
assert row(find_target("hlscnn"), *CASES[0]) is None
"""


def test_parts_of_streams_add_up_to_what_events_say() -> None:
    made = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
