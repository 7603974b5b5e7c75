"""Saturation: the e-graph that saturation gave, how it grew, and why it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .graph import EGraph


@dataclass(frozen=True)
class Saturation:
    """What saturation gave: the e-graph, its rounds, and why it stopped (reason `saturated` when nothing was left to do).

    `growth` are the e-nodes before the first round and after each; `matches` counts those of each rule, by its name, and of
    each mapping, by its constructor.
    """

    graph: EGraph
    rounds: int
    reason: str
    detail: str = ""
    growth: tuple[int, ...] = ()
    matches: Mapping[str, int] = field(default_factory=dict)
    made: Mapping[int, int] = field(default_factory=dict)  # e-nodes by the birth of each, in the forms
    held: Mapping[str, int] = field(default_factory=dict)  # rounds for which added rules were held back, by name
    grown: Mapping[str, int] = field(default_factory=dict)  # e-nodes that came in the rounds of added rules, by name
    regions: int = 1
    forms: int = 1  # of regions: each was saturated once
    seconds: float = field(default=0.0, compare=False)  # of the child's processor, without its imports
    rule_seconds: Mapping[str, float] = field(default_factory=dict, compare=False)  # as `matches`
    is_kept: bool = field(default=False, compare=False)  # the answer to an equal request was kept
