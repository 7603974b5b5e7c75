"""Resources: the architecture graph of an accelerator: memories, compute units and links, with a clock.

Sizes and widths of memories are read from the accelerator model's state; the rest the target adds as data, each figure
with where it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..errors import SpecError
from ..ila import Ila
from ..user_code import entries_of, is_a, name_text, quoted

JOULES = {"fJ": 1e-15, "pJ": 1e-12, "nJ": 1e-9, "µJ": 1e-6}
AXES = ("instance", "bank", "depth", "lane")
MOST_HERTZ = 10**12  # a period of a picosecond, the unit in which times are counted
HOST = "host"  # the end of a link that is no part of the accelerator


@dataclass(frozen=True)
class Energy:
    """The energy of one access or operation in `unit` (fJ … µJ), and the source of the figure."""

    value: float
    unit: str
    source: str

    def __post_init__(self) -> None:
        name_text("Unit of an energy", self.unit)
        name_text("Source of an energy", self.source)
        if not is_a(self.value, (int, float)):
            raise SpecError("I102", f"An energy must be a number, not {quoted(self.value)}")
        if self.unit not in JOULES:
            raise SpecError("I102", f'Unit of an energy must be one of {", ".join(JOULES)}, not "{self.unit}"')
        if not self.source or not self.value > 0 or math.isinf(self.value):
            raise SpecError("I102", f'An energy must be positive and name its source, not {self.value} {self.unit} from "{self.source}"')

    @property
    def joules(self) -> float:
        """The energy in joules."""
        return self.value * JOULES[self.unit]


@dataclass(frozen=True)
class Clock:
    """The clock frequency of a device in hertz, and the source of the figure."""

    hertz: int
    source: str

    def __post_init__(self) -> None:
        _positive("Hertz of a clock", self.hertz)
        if self.hertz > MOST_HERTZ:
            raise SpecError("I102", f"Hertz of a clock must be at most {MOST_HERTZ:,}, not {_magnitude(self.hertz)}")
        if not name_text("Source of a clock", self.source):
            raise SpecError("I102", f"A clock of {self.hertz:,} Hz must name its source")


@dataclass(frozen=True)
class Memory:
    """A memory: `banks` side by side, each `depth` elements of `width_bits`; so many instances, each alike.

    `buffering` is how many tiles it holds at once: 2 for a double buffer, which is filled while the unit reads the other half.
    """

    name: str
    width_bits: int
    depth: int
    banks: int = 1
    instances: int = 1
    read_energy: Energy | None = None
    write_energy: Energy | None = None
    buffering: int = 1

    def __post_init__(self) -> None:
        name_text("Name of a memory", self.name)
        for label, energy in (("Read", self.read_energy), ("Write", self.write_energy)):
            _check_energy(f"{label} energy of memory {self.name}", energy)
        sizes = (("Width", self.width_bits), ("Depth", self.depth), ("Banks", self.banks), ("Instances", self.instances))
        for label, n in (*sizes, ("Buffering", self.buffering)):
            _positive(f"{label} of memory {self.name}", n)
        if self.width_bits % 8 and self.width_bits > 8:
            raise SpecError("I102", f"Width of memory {self.name} must be whole bytes, not {self.width_bits} bits")

    @property
    def elements(self) -> int:
        """Addressable elements of one instance."""
        return self.banks * self.depth

    @property
    def element_bytes(self) -> int:
        """Bytes of one addressable element."""
        return -(-self.width_bits // 8)

    @property
    def row_bytes(self) -> int:
        """Bytes that all banks deliver at once."""
        return self.banks * self.width_bits // 8

    @property
    def capacity_bytes(self) -> int:
        """Bytes of one instance."""
        return self.elements * self.width_bits // 8


@dataclass(frozen=True)
class Unit:
    """A compute unit: what it computes on which element types, and how much of each dimension in one step.

    `packs` are dimensions of which so many share a word, though a step takes fewer.
    """

    name: str
    operations: tuple[str, ...]
    types: tuple[str, ...]
    step: Mapping[str, int]
    instances: int = 1
    energy: Energy | None = None
    packs: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name_text("Name of a unit", self.name)
        for label, names in (("operations", self.operations), ("types", self.types)):
            object.__setattr__(self, label, entries_of(f"The {label} of unit {self.name}", names, str, noun="texts"))
        _check_energy(f"Energy of unit {self.name}", self.energy)
        for label, extents in (("Step", self.step), ("Words", self.packs)):
            if not isinstance(extents, Mapping):
                raise SpecError("I102", f"{label} of unit {self.name} must be numbers by dimension, not {quoted(extents)}")
        sizes = [(f"{label} along {d}", n) for label, extents in (("Step", self.step), ("Word", self.packs)) for d, n in extents.items()]
        for subject, n in (*sizes, ("Instances", self.instances)):
            _positive(f"{subject} of unit {self.name}", n)
        if not self.operations or not self.types:
            raise SpecError("I102", f"Unit {self.name} must have an operation and an element type")

    @property
    def per_cycle(self) -> int:
        """Operations of all instances in one cycle."""
        return math.prod(self.step.values()) * self.instances


@dataclass(frozen=True)
class Link:
    """A connection from `source` to `sink`: `width_bytes` every `cycles`, after `latency_cycles`.

    Links of one `port` are the same wires: they take turns, and are as wide as each other.
    """

    source: str
    sink: str
    width_bytes: int
    cycles: int = 1
    latency_cycles: int = 0
    port: str = ""

    def __post_init__(self) -> None:
        name_text("Source of a link", self.source)
        name_text("Sink of a link", self.sink)
        name_text("Port of a link", self.port)
        name = f"the link from {self.source} to {self.sink}"
        _positive(f"Width of {name}", self.width_bytes)
        _positive(f"Cycles of {name}", self.cycles)
        if type(self.latency_cycles) is not int or self.latency_cycles < 0:
            raise SpecError("I102", f"Latency of {name} must be zero or a positive integer, not {quoted(self.latency_cycles)}")

    @property
    def bytes_per_cycle(self) -> float:
        """Bandwidth."""
        return self.width_bytes / self.cycles

    def cycles_for(self, n: int) -> int:
        """Return the cycles that `n` bytes take, without latency."""
        return -(-n // self.width_bytes) * self.cycles


@dataclass(frozen=True)
class Resources:
    """The architecture graph of one target. Links name memories, units or `host`."""

    clock: Clock
    memories: tuple[Memory, ...]
    units: tuple[Unit, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not is_a(self.clock, Clock):
            raise SpecError("I102", f"The clock of resources must be a Clock, not {quoted(self.clock)}")
        parts = (("memories", self.memories, Memory), ("units", self.units, Unit), ("links", self.links, Link), ("notes", self.notes, str))
        for label, values, kind in parts:
            object.__setattr__(self, label, entries_of(f"The {label} of resources", values, kind))
        names = [*(m.name for m in self.memories), *(u.name for u in self.units)]
        for name in names:
            if names.count(name) > 1:
                raise SpecError("I102", f'Memories and units must have different names, not "{name}" twice')
        for link in self.links:
            for end in (link.source, link.sink):
                if end not in (*names, HOST):
                    raise SpecError("I102", f'A link must join memories, units or {HOST}, not "{end}"')
        widths: dict[str, float] = {}
        for link in (x for x in self.links if x.port):
            if widths.setdefault(link.port, link.bytes_per_cycle) != link.bytes_per_cycle:
                raise SpecError("I102", f'Links of the port "{link.port}" must be as wide as each other, as that to {link.sink} is not')

    def memory(self, name: str) -> Memory:
        """Return a memory by its name.

        Raises:
            SpecError: there is no such memory.
        """
        match = next((m for m in self.memories if m.name == name), None)
        if match is None:
            raise SpecError("I102", f'There is no memory "{name}", only {", ".join(m.name for m in self.memories)}')
        return match

    def link(self, source: str, sink: str) -> Link:
        """Return the link from `source` to `sink`.

        Raises:
            SpecError: there is no such link.
        """
        match = next((x for x in self.links if (x.source, x.sink) == (source, sink)), None)
        if match is None:
            raise SpecError("I102", f"There is no link from {source} to {sink}")
        return match

    @property
    def gives_energies(self) -> bool:
        """Whether every memory and unit declares its energies."""
        return all(m.read_energy and m.write_energy for m in self.memories) and all(u.energy for u in self.units)


Describe = Callable[[Ila, Mapping[str, str]], Resources]


def state_memory(
    ila: Ila,
    state: str,
    axes: str,
    *,
    name: str = "",
    banks: int = 1,
    word: int = 1,
    read: Energy | None = None,
    write: Energy | None = None,
    buffering: int = 1,
) -> Memory:
    """Return a memory whose sizes are those of a state element; `axes` says what each of its axes is: instance, bank, depth or lane.

    `word` elements of the flat depth are one word; `banks` share the depth; `buffering` tiles lie in it at once.

    Raises:
        SpecError: I106 where the model has no such state, or its axes do not divide so.
    """
    if state not in ila.states:
        raise SpecError("I106", f'The model must have the state "{state}" that the resources name')
    element = ila.states[state]
    shape = [int(n) for n in element.leaf.shape]  # type: ignore[arg-type]
    kinds = axes.split()
    if len(kinds) != len(shape) or not set(kinds) <= set(AXES):
        raise SpecError("I106", f"The axes of {state} must be {len(shape)} of {', '.join(AXES)}, not {axes}")
    sizes = {kind: math.prod(n for n, k in zip(shape, kinds, strict=True) if k == kind) for kind in AXES}
    if sizes["depth"] % (banks * word):
        raise SpecError("I106", f"The depth of {state} must divide into {banks} banks of words of {word}, not {sizes['depth']:,}")
    width = element.bits * sizes["lane"] * word
    return Memory(name or state, width, sizes["depth"] // (banks * word), banks * sizes["bank"], sizes["instance"], read, write, buffering)


def resource_document(r: Resources) -> dict[str, object]:
    """Return the graph as JSON, derived quantities included."""
    return {
        "clock_hertz": r.clock.hertz,
        "clock_source": r.clock.source,
        "memories": [
            {
                "name": m.name, "width_bits": m.width_bits, "banks": m.banks, "depth": m.depth, "instances": m.instances,
                "element_bytes": m.element_bytes, "row_bytes": m.row_bytes, "capacity_bytes": m.capacity_bytes,
                "read_energy": _energy(m.read_energy), "write_energy": _energy(m.write_energy), "buffering": m.buffering,
            }
            for m in r.memories
        ],
        "units": [
            {
                "name": u.name, "operations": list(u.operations), "types": list(u.types), "step": dict(u.step), "packs": dict(u.packs),
                "instances": u.instances, "per_cycle": u.per_cycle, "energy": _energy(u.energy),
            }
            for u in r.units
        ],
        "links": [
            {
                "source": x.source, "sink": x.sink, "width_bytes": x.width_bytes, "cycles": x.cycles,
                "latency_cycles": x.latency_cycles, "port": x.port,
            }
            for x in r.links
        ],
        "notes": list(r.notes),
    }  # fmt: skip


def _energy(e: Energy | None) -> dict[str, object] | None:
    return None if e is None else {"value": e.value, "unit": e.unit, "source": e.source}


def _positive(label: str, n: int) -> None:
    if type(n) is not int or n < 1:
        raise SpecError("I102", f"{label} must be a positive integer, not {quoted(n)}")


def _magnitude(n: int) -> str:
    """Return a large number by its digits where it is short, else by its power of two."""
    return f"{n:,}" if n < 10**15 else f"about 2^{n.bit_length() - 1}"


def _check_energy(label: str, energy: object) -> None:
    if energy is not None and not is_a(energy, Energy):
        raise SpecError("I102", f"{label} must be an Energy, not {quoted(energy)}")
