"""Row 121: problems, architectures, constraints and rules that are texts of the right form and ask for too much or for nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bad_case import Case, file

SMALL = "gemm:m=16,n=16,k=16"
MANY, HUGE, DEEP = 10_000, 1 << 63, 900


def nested(depth: int) -> bytes:
    """Return lists in lists."""
    return b"[" * depth + b"]" * depth


def searched(name: str, option: str, document: Any) -> Case:
    """Return a case of a JSON file for a search of mappings."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    subject = ("map", f"{name}.json", "--arch", "edge") if option == "problem" else ("map", SMALL, f"--{option}", f"{name}.json")
    return Case(121, file(f"{name}.json", data), (*subject, *(("--arch", "edge") if option in ("constraints", "mapping") else ())))


def problem(**changes: Any) -> Mapping[str, Any]:
    """Return a product of matrices, changed."""
    tensors = {"a": [{"m": 1}, {"k": 1}], "b": [{"k": 1}, {"n": 1}], "y": [{"m": 1}, {"n": 1}]}
    return {"dimensions": {"m": 16, "n": 16, "k": 16}, "tensors": tensors, "output": "y", **changes}


def architecture(*levels: Any, **changes: Any) -> Mapping[str, Any]:
    """Return an architecture of some levels."""
    return {"name": "a", "clock_hertz": 1, "levels": list(levels), **changes}


def rule_text(term: str) -> bytes:
    """Return a rule in the text form that gives a term another name."""
    return f'rule r(x: tensor) {{\n  "no meaning"\n  {term} = x\n}}\n'.encode()


DOCUMENTS: dict[str, Case] = {
    "problem_nested": searched("problem_nested", "problem", nested(DEEP)),
    "problem_output_list": searched("problem_output_list", "problem", problem(output=["y"])),
    "problem_step": searched("problem_step", "problem", problem(tensors={"a": [{"m": HUGE}], "y": [{"m": 1}]})),
    "problem_axis": searched("problem_axis", "problem", problem(tensors={"a": [{"m": HUGE >> 2}], "y": [{"m": 1}]})),
    "problem_dimensions": searched("problem_dimensions", "problem", problem(dimensions={f"d{n}": 1 for n in range(MANY)})),
    "problem_tensors": searched("problem_tensors", "problem", problem(tensors={f"t{n}": [{"m": 1}] for n in range(MANY)}, output="t0")),
    "problem_axes": searched("problem_axes", "problem", problem(tensors={"a": [{}] * MANY, "y": [{"m": 1}]})),
    "architecture_children": searched("architecture_children", "arch", architecture({"name": "a", "children": HUGE})),
    "architecture_units": searched("architecture_units", "arch", architecture(*({"name": n, "children": HUGE >> 2} for n in "ab"))),
    "architecture_width": searched("architecture_width", "arch", architecture({"name": "a"}, {"name": "b", "width": HUGE})),
    "architecture_levels": searched("architecture_levels", "arch", architecture(*({"name": f"l{n}"} for n in range(MANY)))),
    "constraints_nested": searched("constraints_nested", "constraints", b'{"one_dimension_an_axis": ' + nested(DEEP) + b"}"),
    "constraints_order_lists": searched("constraints_order_lists", "constraints", {"orders": {"L2": [["m"]]}}),
    "constraints_order_twice": searched("constraints_order_twice", "constraints", {"orders": {"L2": ["m", "n", "m"]}}),
    "constraints_bypass_null": searched("constraints_bypass_null", "constraints", {"bypass": {"L1": [None]}}),
    "large_prime": Case(121, lambda folder: None, ("map", f"gemm:m={(1 << 61) - 1},n=1,k=1", "--arch", "edge", "--space-only")),
    **{name: Case(102, file(f"{name}.rules", rule_text(term)), ("prove", f"{name}.rules")) for name, term in {
        "rule_long_name": f"{'a' * 60_000}(x)", "rule_many_sums": "+".join(["x"] * 20_000), "rule_many_signs": f"{'-' * 40_000}x",
        "rule_many_members": f"reshape(x, x{'.shape' * 9_000})",
    }.items()},
}  # fmt: skip
