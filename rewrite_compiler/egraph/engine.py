"""Engine: one egglog e-graph driven a round at a time; runs in the worker process.

Types of new classes are computed between rounds by the operators' own shape rules, so a shape rule is written once.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..ir.types import TensorType, result_types
from ..ops.op import FLOAT, INT, INTS, Op
from .encode import fact_commands, operator_named, term
from .graph import PROGRAM, ClassId, EClass, EGraph, ENode
from .schema import Constructor, constructors, schema_text

LEAVES = {"Input": (INT,), "Constant": (INT,)}


def load_bindings() -> Any:
    """Return egglog's low-level bindings without importing the package around them."""
    os.environ.setdefault("RUST_BACKTRACE", "0")
    package = importlib.util.find_spec("egglog")
    if package is None or package.origin is None:
        raise ImportError("egglog is not installed")
    found = sorted(Path(package.origin).parent.glob("bindings*.so")) or sorted(Path(package.origin).parent.glob("bindings*.pyd"))
    spec = importlib.util.spec_from_file_location("egglog.bindings", found[0]) if found else None
    if spec is None or spec.loader is None:
        return importlib.import_module("egglog.bindings")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Engine:
    """An e-graph under construction."""

    def __init__(self, devices: Sequence[Constructor], rules: Iterable[str], commands: Iterable[str]) -> None:
        self.egglog = load_bindings().EGraph()
        self.constructors = constructors(devices)
        self.run(schema_text(devices))
        for text in rules:
            self.run(text)
        for command in commands:
            self.run(command)
        self.next_number = 1 + max((self.egglog.value_to_i64(r.inputs[0]) for r in self.rows("at")), default=-1)

    def run(self, text: str) -> list[Any]:
        """Run commands."""
        return list(self.egglog.run_program(*self.egglog.parse_program(text)))

    def rows(self, table: str) -> list[Any]:
        """Return the rows of one table."""
        functions = self.egglog.freeze().functions
        return list(functions[table].rows) if table in functions else []

    def round(self, ruleset: str) -> bool:
        """Run one round of a ruleset, then type what is new; tell whether anything changed."""
        report = self.run(f"(run-schedule (run {ruleset}))")
        changed = any(getattr(getattr(r, "report", None), "updated", False) for r in report)
        if changed:
            self.type_new_classes()
        return changed

    def type_new_classes(self) -> None:
        """Give facts to the classes that rules have made, operands first, until nothing changes."""
        while commands := _Facts(self).commands():
            for command in commands:
                self.run(command)

    @property
    def e_nodes(self) -> int:
        """Number of e-nodes."""
        functions = self.egglog.freeze().functions
        return sum(len(functions[name].rows) for name in (*LEAVES, "Result", "Opaque", *self.constructors) if name in functions)

    def snapshot(self) -> EGraph:
        """Return the e-graph as plain data, classes numbered by first occurrence."""
        return _Reader(self).graph()


class _Reader:
    """Reads the frozen tables of an e-graph."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.egglog = engine.egglog
        self.functions = self.egglog.freeze().functions
        self.numbers: dict[Any, ClassId] = {}
        self.lists: dict[Any, tuple[int, ...]] = {}

    def number(self, value: Any) -> ClassId:
        return self.numbers.setdefault(value, len(self.numbers))

    def rows(self, table: str) -> list[Any]:
        return list(self.functions[table].rows) if table in self.functions else []

    def ints(self, value: Any) -> tuple[int, ...]:
        if value not in self.lists:
            self.lists[value] = tuple(self.egglog.value_to_i64(v) for v in self.egglog.value_to_vec(value))
        return self.lists[value]

    def attribute(self, value: Any, kind: str) -> Any:
        if kind == INTS:
            return self.ints(value)
        if kind == INT:
            return self.egglog.value_to_i64(value)
        text = self.egglog.value_to_string(value)
        return float(text) if kind == FLOAT else text

    def table(self, name: str) -> dict[tuple[Any, ...], Any]:
        return {tuple(r.inputs): r.output for r in self.rows(name)}

    def graph(self) -> EGraph:
        values = {self.egglog.value_to_i64(r.inputs[0]): self.number(r.output) for r in self.rows("at")}
        nodes: dict[ClassId, list[ENode]] = {}
        for owner, node in self.e_nodes():
            nodes.setdefault(owner, []).append(node)
        types, fixed = self.types(), {self.number(r.inputs[0]) for r in self.rows("Fixed")}
        return EGraph({c: EClass(types.get(c), c in fixed, tuple(found)) for c, found in nodes.items()}, values)

    def types(self) -> dict[ClassId, TensorType]:
        kinds = {self.number(r.inputs[0]): self.egglog.value_to_string(r.output) for r in self.rows("kind")}
        shapes = {self.number(r.inputs[0]): self.ints(r.output) for r in self.rows("dims")}
        return {c: TensorType(shapes[c], kinds[c]) for c in shapes}

    def e_nodes(self) -> Iterable[tuple[ClassId, ENode]]:
        for name in LEAVES:
            for r in self.rows(name):
                number = int(self.egglog.value_to_string(r.inputs[0]))
                yield self.number(r.output), ENode(name, (), (number,), PROGRAM, frozenset())
        for r in self.rows("Result"):
            yield (
                self.number(r.output),
                ENode("Result", (self.number(r.inputs[0]),), (self.egglog.value_to_i64(r.inputs[1]),), PROGRAM, frozenset()),
            )
        yield from self.opaque()
        for made in self.engine.constructors.values():
            yield from self.applications(made)

    def opaque(self) -> Iterable[tuple[ClassId, ENode]]:
        origins = self.table("f_Opaque")
        for r in self.rows("Opaque"):
            children = tuple(self.number(v) for v in self.egglog.value_to_vec(r.inputs[1]))
            key = self.egglog.value_to_string(r.inputs[0])
            yield self.number(r.output), ENode("Opaque", children, (key,), PROGRAM, self.ids(origins.get(tuple(r.inputs))))

    def applications(self, made: Constructor) -> Iterable[tuple[ClassId, ENode]]:
        births, origins = self.table(f"b_{made.name}"), self.table(f"f_{made.name}")
        for r in self.rows(made.name):
            key = tuple(r.inputs)
            children = tuple(self.number(v) for v in key[: made.operands])
            attributes = tuple(self.attribute(v, k) for v, k in zip(key[made.operands :], made.attributes, strict=True))
            birth = self.egglog.value_to_i64(births[key]) if key in births else PROGRAM
            yield self.number(r.output), ENode(made.name, children, attributes, birth, self.ids(origins.get(key)))

    def ids(self, value: Any) -> frozenset[int]:
        return frozenset() if value is None else frozenset(self.egglog.value_to_i64(v) for v in self.egglog.value_to_set(value))


class _Facts:
    """Finds classes without a type or constness that their operands now determine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.graph = engine.snapshot()
        self.number_of = {c: v for v, c in self.graph.values.items()}

    def commands(self) -> list[str]:
        found: list[str] = []
        for c, e_class in self.graph.classes.items():
            if e_class.type is None or not e_class.fixed:
                found.extend(self.facts(c, e_class))
        return found

    def facts(self, c: ClassId, e_class: EClass) -> list[str]:
        for node in e_class.nodes:
            if any(child not in self.number_of for child in node.children):
                continue
            text = self.text(node)
            if text is None:
                continue
            found = [] if c in self.number_of else [f"(set (at {self.number(c)}) {text})"]
            made = self.type_of(node) if e_class.type is None else None
            fixed = not e_class.fixed and self.is_fixed(node)
            if made is not None:
                found.extend(fact_commands(self.number_of[c], made, fixed))
            elif fixed and e_class.type is not None:
                found.append(f"(Fixed (at {self.number_of[c]}))")
            if found:
                return found
        return []

    def number(self, c: ClassId) -> int:
        self.number_of[c] = self.engine.next_number
        self.engine.next_number += 1
        return self.number_of[c]

    def text(self, node: ENode) -> str | None:
        """Return a term that names the class of an e-node."""
        operands = [self.number_of[child] for child in node.children]
        if node.op == "Result":
            return f"(Result (at {operands[0]}) {node.attributes[0]})"
        op = operator_named(node.op)
        return None if op is None else f"({node.op} {term(op, operands, node.attributes)})"

    def type_of(self, node: ENode) -> TensorType | None:
        """Return the type of an e-node's class, None while its operands have none (or for a tuple)."""
        output, whole = 0, node
        if node.op == "Result":
            output = int(node.attributes[0])  # type: ignore[arg-type]
            applied = [n for n in self.graph.classes[node.children[0]].nodes if operator_named(n.op) is not None]
            if not applied:
                return None
            whole = applied[0]
        op = operator_named(whole.op)
        if op is None or (op.outputs > 1 and whole is node):
            return None
        operands = [t for child in whole.children if (t := self.graph.classes[child].type) is not None]
        if len(operands) != len(whole.children):
            return None
        return self.result(op, whole, operands)[output]

    @staticmethod
    def result(op: Op, node: ENode, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return result_types(op, operands, {a.name: v for a, v in zip(op.attributes, node.attributes, strict=True)})

    def is_fixed(self, node: ENode) -> bool:
        """Tell whether all operands are known at compile time."""
        if node.op != "Result" and operator_named(node.op) is None:
            return False
        return all(self.graph.classes[child].fixed for child in node.children)
