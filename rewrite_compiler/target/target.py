"""Target: an accelerator model, its mappings and their formats under one name, with parameters."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Unpack

from ..errors import UsageError
from ..ila import Ila
from ..ila.macro import Macro, MacroStep, checked_macro
from .functions import Role, call_user
from .layers.formats import integer_format
from .layers.patterns import Pattern
from .mapping import Mapping, MappingDeclaration, PatternDeclaration, make_mapping
from .resources import Describe, Resources


@dataclass(frozen=True)
class Small:
    """A miniature design, whose memories layers of some hundred products fill: parameter values, and units of dimensions.

    `products` bounds by operation how many a call that is drawn computes, its dimensions rounded up to units.
    """

    parameters: MappingOf[str, str]
    units: MappingOf[str, int] = field(default_factory=dict)
    products: MappingOf[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocks:
    """The design with one lane an element: its parameter values, and along which dimensions how many lanes an element has now.

    Its memories hold as many elements, so that a driver emits the same stream for as many elements along these dimensions.
    """

    parameters: MappingOf[str, str]
    lanes: MappingOf[str, int]


@dataclass(frozen=True, eq=False)
class Target:
    """An accelerator. `build` returns its Ila for parameter values; `parameters` lists the values each may take, default first.

    `small` are designs of the same generator on which its drivers are proved, too; they may set what `parameters` do not list.
    """

    name: str
    build: Callable[..., Ila]
    parameters: MappingOf[str, tuple[str, ...]] = field(default_factory=dict)
    doc: str = ""
    sources: tuple[Path, ...] = ()
    chosen: MappingOf[str, str] = field(default_factory=dict)
    mappings: dict[str, Mapping] = field(default_factory=dict)
    describe: Describe | None = None  # its memories, units, links and clock
    small: tuple[Small, ...] = ()
    blocks: Callable[[MappingOf[str, str]], Blocks] | None = None  # of parameter values; None where elements have no lanes
    macros: dict[str, Macro] = field(default_factory=dict)

    def accelerates(self, **declared: Unpack[MappingDeclaration]) -> Callable[[Callable[..., Any]], Mapping]:
        """Declare a pattern from its meaning, a function of pattern variables; its name is the operation unless one is given.

        `axes` names the dimension along each axis, "x: t k; w: n k; y: t n"; `formats` choose each tensor's format; `units`
        are the sizes in which dimensions are divided, `whole` ("t h") those that are not; `shared` are groups of tensors
        ("h y") that the device keeps in one format; `trials` are the sizes of its proofs; `search` are tensors whose format
        is tried out on calibration samples; `derived` are functions from the formats of others, by name, to a tensor's own;
        `draws` are mean and deviation of operands for which the usual random ones mean nothing; `runtime_weights` ("w") are operands
        that are written as weights at run time.
        """

        def decorate(f: Callable[..., Any]) -> Mapping:
            mapping = make_mapping(self.name, f, **declared)
            self.mappings[mapping.variant] = mapping
            return mapping

        return decorate

    def offers(self, pattern: Pattern, name: str = "", **declared: Unpack[PatternDeclaration]) -> Mapping:
        """Declare a pattern of the table of layers, under its own name unless one is given; the entries are those of `accelerates`.

        Operation, whole dimensions and the formats of a model's own codes are the pattern's unless they are given.
        """
        caller = inspect.currentframe()
        frame = caller.f_back if caller is not None else None
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
        integers = {tensor: partial(integer_format, dtype) for tensor, dtype in pattern.types.items()}
        entries: MappingDeclaration = {
            "axes": pattern.axes, "formats": {}, "operation": pattern.operation, "whole": pattern.whole, **declared,
            "derived": {**integers, **declared.get("derived", {})},
        }  # fmt: skip
        mapping = make_mapping(self.name, pattern.meaning(name), place, **entries)
        self.mappings[mapping.variant] = mapping
        return mapping

    def macro(self, *, reason: str, steps: MappingOf[str, MacroStep]) -> Callable[[Callable[..., Any]], Macro]:
        """Declare commands by hand, from the function that yields them of the parameters `p` and the `steps` that generated drivers take.

        `reason` says why no instruction of the model does for the scheduler what the steps do.
        """

        def decorate(f: Callable[..., Any]) -> Macro:
            place = f"{f.__code__.co_filename}:{f.__code__.co_firstlineno}"
            m = checked_macro(self.name, Macro(f.__name__, reason, dict(steps), f, place), self.macros)
            self.macros[m.name] = m
            return m

        return decorate

    def configured(self, parameters: MappingOf[str, str]) -> Target:
        """Return the target with parameter values.

        Raises:
            UsageError: F203 where a parameter or value is unknown.
        """
        for key, value in parameters.items():
            if key not in self.parameters:
                raise UsageError("F203", f'{self.name} has no parameter "{key}"', help=self.parameters_text)
            if value not in self.parameters[key]:
                sentence = f'parameter {key} of {self.name} must be one of {", ".join(self.parameters[key])}, not "{value}"'
                raise UsageError("F203", sentence, help=f"leave it out for {self.values[key]}")
        return self.variant(parameters)

    @property
    def parameters_text(self) -> str:
        """The parameters that there are."""
        return f"parameters: {', '.join(self.parameters) or 'none'}"

    def variant(self, parameters: MappingOf[str, str]) -> Target:
        """Return a design of the same generator, whose parameter values need not be among those that are listed."""
        target = replace(self, chosen={**self.chosen, **parameters})
        return replace(target, mappings={name: replace(m, parameters=target.values) for name, m in self.mappings.items()})

    def miniatures(self) -> Iterator[tuple[Target, MappingOf[str, int]]]:
        """Yield the miniature designs, with the behaviour and encoding of this one, and the bounds of products of their calls."""
        for s in self.small:
            target = self.variant(s.parameters)
            yield replace(target, mappings={name: replace(m, units=s.units) for name, m in target.mappings.items()}), s.products

    @property
    def values(self) -> dict[str, str]:
        """Every parameter with its value."""
        return {**{key: allowed[0] for key, allowed in self.parameters.items()}, **self.chosen}

    def ila(self) -> Ila:
        """Return the accelerator's model at these parameters, built once in a process."""
        return _built(self.build, tuple(self.values.items()))

    def resources(self) -> Resources | None:
        """Return the architecture graph at these parameters, None when the target declares none."""
        return None if self.describe is None else _described(self.describe, self.build, tuple(self.values.items()))

    @property
    def sha256(self) -> str:
        """Hash of the files that define the target, and of its parameters."""
        digest = hashlib.sha256(repr(sorted(self.values.items())).encode())
        for path in sorted(self.sources):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()


@lru_cache(maxsize=16)
def _built(build: Callable[..., Ila], values: tuple[tuple[str, str], ...]) -> Ila:
    built: Ila = call_user(Role("The model of a target", "an Ila"), Ila, build, **dict(values))
    return built


@lru_cache(maxsize=64)
def _described(describe: Describe, build: Callable[..., Ila], values: tuple[tuple[str, str], ...]) -> Resources:
    ila = _built(build, values)
    described: Resources = call_user(
        Role("The resources of a target", "Resources", operands=("ila", "parameters")), Resources, describe, ila, dict(values)
    )
    return described
