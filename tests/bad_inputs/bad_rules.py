"""Rows 67, 99–108: rule files that are wrong, endless, false, or grow without end."""

from __future__ import annotations

from bad_case import Case, both, model, node, proto, text, value

HEAD = "from rewrite_compiler import Law, Tensor, Where, rule\nfrom rewrite_compiler import ops as o\n\n"


def law(name: str, operands: str, left: str, right: str, grade: str = "E") -> str:
    """Return the text of a rule."""
    words = f'"""{left} = {right}"""'
    given = ", ".join(f"{x}: Tensor" for x in operands.split())
    return f'@rule(grade="{grade}")\ndef {name}({given}) -> Law:\n    {words}\n    return {left}, {right}\n\n\n'


def half(start: str, stop: str) -> str:
    """Return the product of some columns of both operands."""
    columns = [f"o.slice_({operand}, axis=1, start={start}, stop={stop})" for operand in "xw"]
    return f"o.dense({', '.join(columns)})"


TWICE = law("relu_twice", "x", "o.relu(o.relu(x))", "o.relu(x)")
HALVES = law(
    "halves", "x w", "o.dense(x, w)",
    f"o.add({half('0', 'x.shape[1] // 2')}, {half('x.shape[1] // 2', 'x.shape[1]')}), Where(x.rank == 2)", "A",
)  # fmt: skip
RULES = {
    "syntax": (99, "x = 1\ndef (\n"),
    "exception": (99, "x = 1\n\nx / 0\n"),
    "leaves": (99, "import sys\nsys.exit(7)\n"),
    "endless_import": (100, "while True: pass\n"),
    "stubborn_import": (100, "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass\n"),
    "long_import": (100, "x = 3\ny = pow(x, 10**9)\n"),
    "ends_process": (100, "import os\nos._exit(0)\n"),
    "unbound": (102, HEAD + law("drop", "x y", "o.relu(x)", "o.add(x, y)")),
    "same_name": (103, HEAD + TWICE + TWICE),
    "false_rule": (104, HEAD + law("relu_over_add", "x y", "o.relu(o.add(x, y))", "o.add(o.relu(x), o.relu(y))")),
    "real_rule": (105, HEAD + law("regroup", "x y z", "o.add(o.add(x, y), z)", "o.add(x, o.add(y, z))", "A")),
    "other_shape": (106, HEAD + law("grow", "x", "o.relu(x)", "o.reshape(o.relu(x), (1, 6))")),
    "unknown_rule": (108, HEAD + HALVES),
}  # fmt: skip


def sums(terms: int) -> object:
    """Return a sum of many inputs, one after the other."""
    names = [f"x{n}" for n in range(terms)]
    nodes = [node("Add", [f"a{n - 1}" if n > 1 else "x0", f"x{n}"], [f"a{n}"], name=f"add{n}") for n in range(1, terms)]
    return model(nodes, [value(n, (2, 3)) for n in names], [f"a{terms - 1}"])


ANY_ORDER = law("swap", "x y", "o.add(x, y)", "o.add(y, x)") + law(
    "regroup", "x y z", "o.add(o.add(x, y), z)", "o.add(x, o.add(y, z))", "A"
)
GROWS = law("twice", "x", "o.relu(x)", "o.relu(o.relu(x))")
LIMITED = ("--limits", "e_nodes=150", "--limits", "rounds=8", "--limits", "extraction_seconds=5", "--accel", "flexasr")
LAWS: dict[str, Case] = {
    **{name: Case(row, text(f"{name}.py", words), ("prove", f"{name}.py")) for name, (row, words) in RULES.items()},
    "explosion": Case(
        67, both(proto("sum", lambda: sums(6)), text("order.py", HEAD + ANY_ORDER)), ("sum.onnx", "--rules", "order.py", *LIMITED)
    ),
    "growth": Case(
        107, both(proto("relu", lambda: model([node("Relu")])), text("grows.py", HEAD + GROWS)),
        ("relu.onnx", "--rules", "grows.py", *LIMITED),
    ),
}  # fmt: skip
