"""The stored counter-examples of the gallery: written by `python -m known_wrong.stored` from tests/, checked without the court.

A value is checked by running both sides on the stored operands; a shape by the shape rules alone.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from known_wrong.gallery import FALSE, gallery
from rewrite_compiler.lang.expr import Expr
from rewrite_compiler.ops.op import ShapeError, Variable, subterms
from rewrite_compiler.ops.static import holds
from rewrite_compiler.prove.instances.instance_search import Instance
from rewrite_compiler.prove.instances.sides import binding_of, number_text, right_shape, side_values
from rewrite_compiler.prove.verdict import Counterexample
from rewrite_compiler.rewrite.rule import Rule

FILE = Path(__file__).with_name("counterexamples.json")
NUMBER = re.compile(r"-?(?:\d+/\d+|inf|nan|\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
SHAPE = re.compile(r"tensor\[(.*)\]")
NO_MEANING = "no meaning"


def record(c: Counterexample) -> dict[str, Any]:
    attributes = {name: list(v) if isinstance(v, tuple) else v for name, v in c.attributes.items()}
    place = None if c.place is None else list(c.place)
    return {"operands": dict(c.operands), "attributes": attributes, "place": place, "left": c.left, "right": c.right}


def stored() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return found


def data_of(text: str) -> Any:
    """Return the array that a counter-example shows."""
    quoted = NUMBER.sub(lambda m: f'"{m[0]}"', text)
    number = np.vectorize(lambda s: float(Fraction(s)) if "/" in s else float(s), otypes=[np.float64])
    return number(np.array(json.loads(quoted)))


def refutes(rule: Rule, kept: dict[str, Any]) -> bool:
    """Tell whether a stored counter-example lies in the rule's guard and its sides are what is stored there."""
    shapes = {name: shape_of(text) for name, text in kept["operands"].items()}
    attributes = {name: tuple(v) if isinstance(v, list) else v for name, v in kept["attributes"].items()}
    values = {key if isinstance(key := rule.variables[name], Expr) else name: v for name, v in attributes.items()}
    variables = {x for left, _ in rule.pairs for x in subterms(left) if isinstance(x, Variable)}
    instance = Instance({id(v): shapes[v.name] for v in variables}, values, shapes)
    binding = binding_of(instance)
    if not all(holds(c, binding) for c in rule.where):
        return False
    if kept["place"] is None and any(map(SHAPE.match, kept["operands"].values())):
        return any(str(binding.shape(left)) == kept["left"] and right_text(right, instance) == kept["right"] for left, right in rule.pairs)
    place = tuple(kept["place"] or ())
    operands = {name: data_of(text).reshape(shapes[name]) for name, text in kept["operands"].items()}
    pairs = side_values(rule.pairs, instance, operands, np.float64)
    return kept["left"] != kept["right"] and any(
        (number_text(a[place]), number_text(b[place])) == (kept["left"], kept["right"]) for a, b in pairs
    )


def right_text(right: Any, instance: Instance) -> str:
    try:
        return str(right_shape(right, instance))
    except (ShapeError, IndexError, ZeroDivisionError):
        return NO_MEANING


def shape_of(text: str) -> tuple[int, ...]:
    found = SHAPE.match(text)
    return tuple(int(n) for n in found[1].split(",") if n) if found else tuple(data_of(text).shape)


def main() -> None:
    """Judge the gallery and store what refutes it."""
    from rewrite_compiler.prove.rules.rules import prove_rule

    found = {}
    for rule in gallery(*FALSE):
        example = prove_rule(rule).counterexample
        assert example is not None, rule
        found[rule.name] = record(example)
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
