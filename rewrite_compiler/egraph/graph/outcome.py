"""Outcome of equality saturation: the e-graph, its growth by rounds and rules, and the reason to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .graph import EGraph


class StopReason(StrEnum):
    """Why saturation stopped; plans and reports show the value."""

    SATURATED = "saturated"
    """A round of all rules changed nothing: the e-graph is closed under them."""

    E_NODES = "e_nodes"
    """The next round could have exceeded the limit of e-nodes."""

    ROUNDS = "rounds"
    """The limit of rounds was reached."""

    SECONDS = "seconds"
    """The limit of processor time ended the child process, so that the same command gives the same plan beside other work."""

    MEMORY = "memory"
    """The child process ran out of its address space."""

    CRASHED = "crashed"
    """The child process ended for another reason: a panic of egglog, as a union of different shapes or types is one."""


@dataclass(frozen=True)
class Saturation:
    """The e-graph after saturation, the rounds run, and why it stopped.

    `growth` are the numbers of e-nodes before the first round and after each; `matches` counts the matches of each rule by its
    name, and of each mapping by its constructor.
    """

    graph: EGraph
    rounds: int
    reason: StopReason
    detail: str = ""
    growth: tuple[int, ...] = ()
    matches: Mapping[str, int] = field(default_factory=dict)
    e_nodes_by_birth: Mapping[int, int] = field(default_factory=dict)  # e-nodes by the birth of each, in the forms
    rounds_held: Mapping[str, int] = field(default_factory=dict)  # rounds for which added rules were held back, by name
    e_nodes_added: Mapping[str, int] = field(default_factory=dict)  # e-nodes that came in the rounds of added rules, by name
    regions: int = 1
    forms: int = 1  # of regions: each was saturated once
    seconds: float = field(default=0.0, compare=False)  # of the child's processor, without its imports
    rule_seconds: Mapping[str, float] = field(default_factory=dict, compare=False)  # as `matches`
    is_cached: bool = field(default=False, compare=False)  # the answer to an equal request was kept
