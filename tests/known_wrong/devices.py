"""Wrong accelerator models, drivers and numerics: the toy accelerator of the tutorial with one line changed.

The counter-examples that refute them are stored by `python -m known_wrong.devices` from tests/: codes of a seed at a size.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewrite_compiler.prove.mappings.mappings import prove_mapping
from rewrite_compiler.prove.verdict import Counterexample, Proof
from rewrite_compiler.target import Target, load_target

FILE = Path(__file__).with_name("devices.json")
PAGE = Path(__file__).parents[2] / "docs/tutorial/first-accelerator.md"


@dataclass(frozen=True)
class Change:
    """One line of the toy accelerator as it is and as it is wrong; `part` is what it spoils."""

    part: str
    old: str
    new: str


TRUNCATED = '''def truncated(length, shift, x, w):
    """Without the half that rounds."""
    most = (1 << 19) - 1
    total = fold(length, 0, lambda v, acc: sat(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), 20), (-most - 1, most))
    return sat(total >> shift, 8)


def build():'''
HALF_EVEN = "from rewrite_compiler.lang import select\n\n\n" + TRUNCATED.replace(
    "sat(total >> shift, 8)", "sat((total + ((lift(1) << shift) >> 1) - (1 - (total >> shift) % 2) * select(shift > 0, 1, 0)) >> shift, 8)"
)
SATURATED_ONCE = '''def truncated(length, shift, x, w):
    """The accumulator saturates after the last step only."""
    total = fold(length, 0, lambda v, acc: sat(acc + reduce_sum(lambda j: x(v, j) * w(v, j), LANES), 40), (-(1 << 39), (1 << 39) - 1))
    return sat((sat(total, 20) + ((lift(1) << shift) >> 1)) >> shift, 8)


def build():'''
LAST_FIRST = '''def truncated(length, shift, x, w):
    """The vectors are added in the other order, which saturation notices."""
    most, last = (1 << 19) - 1, length - 1
    step = lambda v, acc: sat(acc + reduce_sum(lambda j: x(last - v, j) * w(last - v, j), LANES), 20)
    total = fold(length, 0, step, (-most - 1, most))
    return sat((total + ((lift(1) << shift) >> 1)) >> shift, 8)


def build():'''
NUMERICS = "return array(lambda t, n: dot_product("
OTHER = Change("numerics", NUMERICS, NUMERICS.replace("dot_product", "truncated"))
NARROW = TRUNCATED.replace("total >> shift", "(total + ((lift(1) << shift) >> 1)) >> shift").replace("19", "18").replace(", 20)", ", 19)")
WRONG: dict[str, tuple[Change, ...]] = {
    "the first weight vector is not added": (Change("model", "w[(first[()] + v) % WEIGHTS, j]", "w[v % WEIGHTS, j]"),),
    "weights are read one vector further": (Change("model", "w[(first[()] + v) %", "w[(first[()] + v + 1) %"),),
    "inputs are read one vector further": (Change("model", "x[v % INPUTS, j]", "x[(v + 1) % INPUTS, j]"),),
    "lanes of the weights are mirrored": (Change("model", "% WEIGHTS, j]", "% WEIGHTS, LANES - 1 - j]"),),
    "inputs have no sign": (Change("model", "signed(x[v % INPUTS, j], 8)", "x[v % INPUTS, j]"),),
    "the field of the result begins one bit late": (
        Change("model", "21:16 to", "22:17 to"),
        Change("model", "to[()], 0", "(to[()] * 2) % RESULTS, 0"),
    ),
    "every result goes to one vector": (Change("model", "to[()], 0", "to[()] * 0, 0"),),
    "a result goes to lane 1": (Change("model", "to[()], 0", "to[()], 1"),),
    "the accumulator has one bit less": (
        Change("model", "code = dot_product(", "code = truncated("),
        Change("model", "def build():", NARROW),
    ),
    "numerics that truncate": (OTHER, Change("numerics", "def build():", TRUNCATED)),
    "numerics that round halves to even": (OTHER, Change("numerics", "def build():", HALF_EVEN)),
    "numerics that saturate once at the end": (OTHER, Change("numerics", "def build():", SATURATED_ONCE)),
    "numerics that add the vectors in the other order": (OTHER, Change("numerics", "def build():", LAST_FIRST)),
    "the driver forgets how long a row of weights is": (Change("driver", "first=n * length", "first=n"),),
    "the driver sends the rows in reverse": (Change("driver", "w.reshape(-1, LANES) % 256", "w[::-1].reshape(-1, LANES) % 256"),),
    "the driver shifts by one more": (Change("driver", "length=length, shift=shift_of(f))", "length=length, shift=shift_of(f) + 1)"),),
    "the driver returns bytes without a sign": (Change("driver", "((lanes + np.int64(128)) % 256 - 128)", "lanes"),),
    "the driver sends one input vector twice": (
        Change("driver", "index=np.arange(length), vector=x", "index=np.arange(length) // 2, vector=x"),
    ),
}


def text_of(changes: tuple[Change, ...]) -> str:
    """Return the toy accelerator with lines changed; AssertionError where a line is not there."""
    found = re.search(r"```python file=toy\.py\n(.*?)\n```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    text = found[1] + "\n"
    for c in changes:
        assert c.old in text, c
        text = text.replace(c.old, c.new)
    return text


def target_of(changes: tuple[Change, ...], folder: Path) -> Target:
    """Return the target of a changed file."""
    path = folder / "toy.py"
    path.write_text(text_of(changes), "utf-8")
    return load_target(str(path))


def judged(changes: tuple[Change, ...], folder: Path) -> Proof:
    """Return the verdict on the one mapping of a changed file."""
    made = target_of(changes, folder)
    return prove_mapping(made.mappings["dense"], made.ila())


def record(proof: Proof) -> dict[str, Any]:
    assert proof.counterexample is not None, proof
    return record_of(proof.counterexample)


def record_of(c: Counterexample) -> dict[str, Any]:
    return {"sizes": dict(c.attributes), "operands": dict(c.operands), "place": list(c.place or ()), "left": c.left, "right": c.right}


def stored() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return found


def main() -> int:
    """Judge them and store what refutes them."""
    found = {}
    for name, changes in WRONG.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = record(judged(changes, Path(folder)))
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
