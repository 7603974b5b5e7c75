"""Recurrent layers at symbolic lengths: the states after n steps, compared by induction on n.

A state is named by its initial states, by the step, and by n. Two are equal when their initial states are equal and their steps
are equal for any states whatever: that is the induction. A fold whose initial states are the last ones of another with the same
step is that fold continued, which holds by induction on its own length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .atom_keys import height_of, renamed
from .polynomials import ZERO, Poly, as_poly, atom, atom_number, key_of
from .real_elements import ZERO_ELEMENT, NotProved, Real, ShapeMismatch, number
from .symbolic_tensors import Attributes, Index, Tensor, Typing, tensor_by_index

State = Callable[[Poly, Poly], Real]  # row and column to the element
Step = Callable[[Poly, Sequence[State]], Sequence[State]]
UNROLLED = 3  # steps that are written out


@dataclass(frozen=True)
class Fold:
    """States [rows, columns] that a step maps to the next ones, from initial ones."""

    typing: Typing
    steps: Poly
    rows: Poly
    columns: Poly
    initial: Sequence[State]
    step: Step

    def states_after(self, n: Poly, row: Poly, column: Poly) -> list[Real]:
        """Return the elements at row and column of all states after n ≥ 1 steps."""
        n = self.typing.facts.norm(n)
        canonical = self._canonical_names()
        if canonical[2] == ZERO and n.number is not None and n.number <= UNROLLED:
            return self._unrolled(n.number, row, column)
        first, step, preceding_steps = canonical
        place = [self.typing.facts.norm(p) for p in (n + preceding_steps, row, column)]
        return [self.typing.reals.atom("fold", k, *place, first, step) for k in range(len(self.initial))]

    def _unrolled(self, n: int, row: Poly, column: Poly) -> list[Real]:
        states = self.initial
        for t in range(n):
            states = self.step(as_poly(t), states)
        return [s(row, column) for s in states]

    def _canonical_names(self) -> tuple[Any, Any, Poly]:
        """Return initial states and step under canonical names; those of the fold that this one continues, and how long that is."""
        facts = self.typing.facts
        row, column = facts.index(self._fresh(), self.rows), facts.index(self._fresh(), self.columns)
        time, states = facts.index(self._fresh(), self.steps), atom(self._fresh())
        symbolic_states = [self._state(states, k) for k in range(len(self.initial))]
        first = [s(row, column) for s in self.initial]
        next_states = tuple(s(row, column).frozen for s in self.step(time, symbolic_states))
        step = _under_names(self._extents(), next_states, (time, row, column, states))
        continued = _continued(first, step, (time, row, column))
        return continued or (_under_names(self._extents(), tuple(x.frozen for x in first), (ZERO, row, column, ZERO)), step, ZERO)

    def _extents(self) -> tuple[Poly, Poly]:
        return self.typing.facts.norm(self.rows), self.typing.facts.norm(self.columns)

    def _fresh(self) -> Any:
        return ("v", next(self.typing.reals.fresh))

    def _state(self, states: Poly, k: int) -> State:
        norm = self.typing.facts.norm
        return lambda row, column: self.typing.reals.atom("state", states, k, norm(row), norm(column))


def _under_names(extents: Sequence[Poly], body: Any, variables: Sequence[Poly]) -> Any:
    """Return a body with its variables by the height at which they are bound; those that are known stay what they are."""
    height = height_of(body)
    names = {next(iter(v.atoms)): atom(("bound", height, k)) for k, v in enumerate(variables) if v.atoms}
    return ("range", height, tuple(extents), renamed(body, names))


def _continued(first: Sequence[Real], step: Any, place: tuple[Poly, Poly, Poly]) -> tuple[Any, Any, Poly] | None:
    """Return first states, step and length of the fold whose last states `first` are, if `step` goes on with its steps.

    `place` is time, row and column; the time of a single step is 0.
    """
    time_index, row, column = place
    keys = [_only_atom(x) for x in first]
    if any(key is None or key[0] != "fold" or key[1] != k or key[3:5] != (row, column) for k, key in enumerate(keys)):
        return None
    folds = {(key[2], key[5], key[6]) for key in keys}
    if len(folds) != 1:
        return None
    ((length, start, steps),) = folds
    time = atom(("bound", steps[1], 0)) if time_index.atoms else ZERO
    shifted = renamed(steps, {atom_number(("bound", steps[1], 0)): time + length})
    return (start, steps, length) if shifted == step else None


def _only_atom(x: Real) -> Any:
    if len(x.terms) != 1:
        return None
    ((conditions, atoms), factor) = next(iter(x.terms.items()))
    return key_of(atoms[0]) if not conditions and factor == 1 and len(atoms) == 1 else None


# -- layers


def _elements(s: Tensor) -> State:
    return lambda row, column: s.at((row, column))


def _sigmoid(t: Typing, x: Real) -> Real:
    return t.reals.apply("rdiv", number(1), t.reals.add(number(1), t.reals.apply("call exp", t.reals.scaled(x, -1))))


def _tanh(t: Typing, x: Real) -> Real:
    return t.reals.apply("call tanh", x)


def _relu(t: Typing, x: Real) -> Real:
    return t.reals.apply("max", x, ZERO_ELEMENT)


@dataclass(frozen=True)
class _Layer:
    """Operands of a recurrent layer with a number of gates, checked against its shape rule."""

    typing: Typing
    operands: Sequence[Tensor]
    gates: int

    def __post_init__(self) -> None:
        x, w, r, b, *states = self.operands
        if [len(v.shape) for v in self.operands] != [3, 2, 2, 1, *[2] * len(states)]:
            raise ShapeMismatch
        hidden, require_equal = r.shape[1], self.typing.require_equal
        for rows, expected in ((w.shape[0], hidden * self.gates), (r.shape[0], hidden * self.gates), (b.shape[0], hidden * 2 * self.gates)):
            require_equal(rows, expected)
        require_equal(w.shape[1], x.shape[2])
        for s in states:
            require_equal(s.shape[0], x.shape[1])
            require_equal(s.shape[1], hidden)

    @property
    def hidden(self) -> Poly:
        """Number of units."""
        return self.operands[2].shape[1]

    def row(self, gate: int, j: Poly) -> Poly:
        """Return the row of the weights that belongs to unit j of a gate."""
        return self.hidden * gate + j

    def bias(self, gate: int, j: Poly, *, recurrent: bool) -> Real:
        """Return the bias of a unit's gate, from the input or from the state."""
        return self.operands[3].at([self.row(gate + (self.gates if recurrent else 0), j)])

    def from_input(self, gate: int, time: Poly, n: Poly, j: Poly) -> Real:
        """Return x·w of a unit's gate."""
        x, w, r = self.operands[0], self.operands[1], self.typing.reals
        return r.total([w.shape[1]], lambda c: r.multiply(x.at((time, n, c)), w.at((self.row(gate, j), c))))

    def from_state(self, gate: int, element: Callable[[Poly], Real], j: Poly) -> Real:
        """Return the product of a unit's gate with some elements of a state."""
        weight, r = self.operands[2], self.typing.reals
        return r.total([self.hidden], lambda c: r.multiply(element(c), weight.at((self.row(gate, j), c))))

    def gate(self, gate: int, time: Poly, h: State, n: Poly, j: Poly) -> Real:
        """Return the pre-activation of a gate at unit j."""
        parts = (self.from_input(gate, time, n, j), self.from_state(gate, lambda c: h(n, c), j))
        return self.typing.reals.add(*parts, self.bias(gate, j, recurrent=False), self.bias(gate, j, recurrent=True))

    def folded(self, step: Step) -> tuple[Tensor, ...]:
        """Return the first state after every step, and every state after the last."""
        x, t = self.operands[0], self.typing
        states = [_elements(s) for s in self.operands[4:]]
        fold = Fold(t, x.shape[0], x.shape[1], self.hidden, states, step)
        last = [x.shape[1], self.hidden]

        def all_states(i: Index) -> Real:
            return fold.states_after(i[0] + 1, i[1], i[2])[0]

        def end(k: int) -> Callable[[Index], Real]:
            return lambda i: fold.states_after(x.shape[0], i[0], i[1])[k]

        last_states = [tensor_by_index(t, last, end(k)) for k in range(len(states))]
        return (tensor_by_index(t, [x.shape[0], *last], all_states), *last_states)


def _lstm(t: Typing, operands: Sequence[Tensor], a: Attributes) -> tuple[Tensor, ...]:
    layer, r = _Layer(t, operands, 4), t.reals

    def step(time: Poly, states: Sequence[State]) -> Sequence[State]:
        h, c = states

        def cell(n: Poly, j: Poly) -> Real:
            i, f = (_sigmoid(t, layer.gate(g, time, h, n, j)) for g in (0, 2))
            return r.add(r.multiply(f, c(n, j)), r.multiply(i, _tanh(t, layer.gate(3, time, h, n, j))))

        return [lambda n, j: r.multiply(_sigmoid(t, layer.gate(1, time, h, n, j)), _tanh(t, cell(n, j))), cell]

    return layer.folded(step)


def _gru(t: Typing, operands: Sequence[Tensor], a: Attributes) -> tuple[Tensor, ...]:
    layer, r, flag = _Layer(t, operands, 3), t.reals, a["linear_before_reset"].number
    if flag is None:
        raise NotProved

    def candidate(time: Poly, h: State, n: Poly, j: Poly) -> Real:
        def reset(k: Poly) -> Real:
            return _sigmoid(t, layer.gate(1, time, h, n, k))

        input_part, bias = r.add(layer.from_input(2, time, n, j), layer.bias(2, j, recurrent=False)), layer.bias(2, j, recurrent=True)
        if flag:
            return _tanh(t, r.add(input_part, r.multiply(reset(j), r.add(layer.from_state(2, lambda c: h(n, c), j), bias))))
        return _tanh(t, r.add(input_part, layer.from_state(2, lambda c: r.multiply(reset(c), h(n, c)), j), bias))

    def step(time: Poly, states: Sequence[State]) -> Sequence[State]:
        (h,) = states

        def state(n: Poly, j: Poly) -> Real:
            z = _sigmoid(t, layer.gate(0, time, h, n, j))
            complement = r.add(number(1), r.scaled(z, -1))
            return r.add(r.multiply(complement, candidate(time, h, n, j)), r.multiply(z, h(n, j)))

        return [state]

    return layer.folded(step)


def _rnn(t: Typing, operands: Sequence[Tensor], a: Attributes) -> tuple[Tensor, ...]:
    layer, activation = _Layer(t, operands, 1), a["activation"]
    activations: dict[str, Callable[[Typing, Real], Real]] = {
        "tanh": _tanh,
        "sigmoid": _sigmoid,
        "relu": _relu,
    }

    def unknown(t: Typing, x: Real) -> Real:
        return t.reals.apply(f"activation {activation}", x)

    function = activations.get(activation, unknown)

    def step(time: Poly, states: Sequence[State]) -> Sequence[State]:
        return [lambda n, j: function(t, layer.gate(0, time, states[0], n, j))]

    return layer.folded(step)


RECURRENCES: dict[str, Callable[[Typing, Sequence[Tensor], Attributes], tuple[Tensor, ...]]] = {"gru": _gru, "lstm": _lstm, "rnn": _rnn}
