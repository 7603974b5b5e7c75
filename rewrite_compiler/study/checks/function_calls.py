"""Calls of the functions of a target, each once, so that everything that is wrong with them is told at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as MappingOf
from functools import partial
from typing import Any

import numpy as np

from ...errors import FlexmatchError, Problem, SpecError
from ...ila import Ila
from ...lang.binders import Leaf
from ...lang.formats import Format
from ...target import Mapping, Target, simulated_device
from ...target.functions import place_of_function
from ...target.resources import Resources
from .accuracy import accuracy_sizes

Call = tuple[str, Callable[[], object]]  # what is called, and how


def function_problems(m: Mapping, target: Target, ila: Ila | None) -> dict[Problem, str]:
    """Return what is wrong with the functions of a mapping, each with the part that it belongs to.

    Each is called at the first of its trials, else at the sizes at which its accuracy is measured; a driver needs the model. Costs of a
    target whose resources cannot be had are judged as far as they do not ask for them.
    """
    sizes = m.trials[0] if m.trials else accuracy_sizes(m)
    attributes = {name: sizes[name] for name, _ in m.statics if name in sizes}
    refusals = _refusals([("residency", partial(m.rooms, sizes, attributes)), ("levels", partial(m.accesses, sizes, attributes))])
    refusals |= _cost_refusals(m, target if ila is not None else None, sizes, attributes)
    limits = _refusals([("limits", partial(m.exceeded_limit, sizes, attributes))], place_of_function(m.capacities))
    if not limits and m.exceeded_limit(sizes, attributes) is not None:  # sizes that the limits refuse are a problem of the limits
        return refusals
    return refusals | limits | _refusals(_computing(m, ila, sizes, attributes))


class _UnknownResources:
    """Stands for resources that a target fails to state: whoever asks it for anything cannot be judged."""

    is_asked = False

    def __getattr__(self, name: str) -> Any:
        self.is_asked = True
        raise SpecError("I104", f"the resources of the target, of which {name} is asked, cannot be had")


def _cost_refusals(m: Mapping, target: Target | None, sizes: MappingOf[str, Any], attributes: MappingOf[str, Any]) -> dict[Problem, str]:
    """Return what is wrong with the costs of a mapping, without a target what they get wrong before they ask for its resources."""
    resources: Any = (None if target is None else _resources(target)) or _UnknownResources()
    refusals = _refusals([("costs", partial(m.cost, sizes, attributes, resources))])
    return {} if isinstance(resources, _UnknownResources) and resources.is_asked else refusals


def _resources(target: Target) -> Resources | None:
    """Return the resources of a target, None where it has none or its function fails, which is a problem of the target."""
    with contextlib.suppress(FlexmatchError):
        return target.resources()
    return None


def _computing(m: Mapping, ila: Ila | None, sizes: MappingOf[str, Any], attributes: MappingOf[str, Any]) -> Iterator[Call]:
    """Yield the calls of the functions that say what a tile computes: its formats, its numerics and its driver."""
    formats = dict[str, Format]()

    def choose_formats() -> None:
        formats.update(m.formats_for(dict.fromkeys(m.format_choices, 1.0)))

    yield "formats", choose_formats
    shapes = {v.name: [sizes[d] for d in m.axes.of[v.name]] for v in m.operands}
    if not shapes.keys() <= formats.keys():
        return
    if m.codes is not None:
        leaves = [Leaf(tuple(shape), formats[n].codes, False, n) for n, shape in shapes.items()]
        yield "numerics", partial(m.result_codes, leaves, formats, attributes)
    if m.drive is not None and ila is not None:
        zeros = {n: np.zeros(shape, np.int64) for n, shape in shapes.items()}
        yield "driver", partial(_run_driver, m, ila, zeros, formats, attributes)


def _run_driver(m: Mapping, ila: Ila, *arguments: Any) -> None:
    """Run a driver on a device; what the device refuses is no mistake of the function, and is told with the limits."""
    try:
        m.run_driver(simulated_device(ila), *arguments)
    except FlexmatchError as error:
        if error.problem.place:
            raise


def _refusals(calls: Iterable[Call], place: str = "") -> dict[Problem, str]:
    """Call functions of a target, each once; return their refusals, those without a place at the one given."""
    refusals: dict[Problem, str] = {}
    for part, f in calls:
        try:
            f()
        except FlexmatchError as error:
            refusals.setdefault(error.at(place).problem, part)
    return refusals
