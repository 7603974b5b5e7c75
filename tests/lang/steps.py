"""Random steps on small memories: nested loops whose addresses collide, overlap, shift and accumulate."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from terms import Terms

from rewrite_compiler.lang import Expr, Leaf, Step, array, const, let, lift, loop, sat, seq, together, update, when, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import Comprehension, static_shape
from rewrite_compiler.lang.step import Update, make_update

WORDS = [(8, False), (8, True), (16, True), (32, True)]


@dataclass
class Steps:
    """Draws steps that read and write `memories`; addresses and lengths read `control` only."""

    draw: st.DrawFn
    memories: list[Leaf]
    control: Leaf
    writes_control: bool
    variables: list[Expr] = field(default_factory=list)
    budget: int = 8

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, items: list[str]) -> str:
        return self.draw(st.sampled_from(items))

    def step(self, depth: int) -> Step:
        """Return a step."""
        self.budget -= 1
        kinds = ["update_step", "accumulate_step", "update_step"]
        if depth > 0 and self.budget > 0:
            kinds += ["loop", "loop", "loop", "loop", "seq_step", "together_step", "when_step", "let_step"]
        if self.writes_control:
            kinds.append("control_step")
        made: Step = getattr(self, self.pick(kinds))(depth)
        return made

    def loop(self, depth: int) -> Step:
        """Return a loop."""
        extent: Expr = const(self.number(0, 5)) if self.number(0, 3) else self.setting() % 4
        return loop(extent, lambda k: self.bound((k,), lambda: self.step(depth - 1)))

    def seq_step(self, depth: int) -> Step:
        return seq(*(self.step(depth - 1) for _ in range(self.number(1, 3))))

    def when_step(self, depth: int) -> Step:
        return when(self.address(5) < self.number(0, 5), self.step(depth - 1), self.step(depth - 1))

    def let_step(self, depth: int) -> Step:
        n = self.number(1, 4)
        kept = array(lambda i: self.bound((i,), lambda: self.value(1)), n)

        def body(local: Leaf) -> Step:
            self.memories.append(local)
            made = self.step(depth - 1)
            self.memories.remove(local)
            return seq(made, self.again(kept)) if self.number(0, 1) else made

        return let(kept, body)

    def again(self, kept: Comprehension) -> Step:
        """Return a step that computes the elements of an array from what the memories hold by then."""
        memory, (n,) = self.state(), static_shape(kept)
        places = self.bound(kept.variables, lambda: self.place(memory))
        return make_update(memory, kept.variables, (lift(n),), places, self.fitted(memory, kept.body))

    def together_step(self, depth: int) -> Step:
        return together(*(u for u in (self.update_step(0) for _ in range(self.number(1, 3))) if isinstance(u, Update)))

    def update_step(self, depth: int) -> Step:
        memory = self.state()
        extents = tuple(self.number(1, 3) for _ in range(self.number(0, 2)))

        def element(*i: Expr) -> tuple[tuple[Expr, ...], Expr]:
            return self.bound(i, lambda: (self.place(memory), self.fitted(memory, self.value(2))))

        return update(memory, extents, element)

    def accumulate_step(self, depth: int) -> Step:
        """m[a] := wrap or sat (m[a] + t): what may run at once when it wraps, and may not when it saturates."""
        memory = self.state()
        extents = tuple(self.number(1, 3) for _ in range(self.number(0, 2)))

        def element(*i: Expr) -> tuple[tuple[Expr, ...], Expr]:
            at = self.bound(i, lambda: self.place(memory))
            total = memory[at] + self.bound(i, lambda: self.value(1))
            return at, self.fitted(memory, total)

        return update(memory, extents, element)

    def control_step(self, depth: int) -> Step:
        return update(self.control, (), lambda: (self.address(static_shape(self.control)[0]), wrap(self.value(1), 3, False)))

    def bound(self, variables: tuple[Expr, ...], make: object) -> object:
        """Return what `make` gives while the variables are in scope."""
        outer, self.variables = self.variables, [*self.variables, *variables]
        made = make()  # type: ignore[operator]
        self.variables = outer
        return made

    def state(self) -> Leaf:
        return self.draw(st.sampled_from([m for m in self.memories if m.name.startswith("m")]))

    def setting(self) -> Expr:
        """Return one element of the control memory."""
        return self.control[self.number(0, static_shape(self.control)[0] - 1)]

    def place(self, memory: Leaf) -> tuple[Expr, ...]:
        return tuple(self.address(n) for n in static_shape(memory))

    def address(self, n: int) -> Expr:
        """Return an index inside 0 … n−1: mostly affine in the variables, sometimes through control."""
        total = lift(self.number(0, 2))
        for v in self.variables[-3:]:
            total = total + v * self.draw(st.sampled_from([1, 1, 1, 0, 2, 3]))
        if self.number(0, 5) == 0:
            total = total + self.setting()
        if self.number(0, 7) == 0 and self.variables:
            total = self.control[self.draw(st.sampled_from(self.variables)) % static_shape(self.control)[0]]
        return total if iv.inside(total.interval, (0, n - 1)) else total % n

    def value(self, depth: int) -> Expr:
        """Return a value that reads the memories at addresses of its own."""
        terms = Terms(self.draw, self.memories, self.variables, 6)
        terms.index = self.address  # type: ignore[method-assign]
        return terms.term(depth)

    def fitted(self, memory: Leaf, value: Expr) -> Expr:
        bits, is_signed = iv.width_of(memory.interval) or (8, False)
        return wrap(value, bits, is_signed) if self.number(0, 2) else sat(value, bits, is_signed)
