"""Link traffic: the bytes of an offload by the link that they cross.

A tensor crosses the link between the host and the memory that the mapping's levels name for it. What has no such memory is on the
only link of its direction, or where there are several on `host → device` and `device → host`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..target import Cost, Resources
from ..target import Mapping as Operation
from ..target.resources import HOST
from .mapping.calls import Tiling
from .overlap import memories_of

DEVICE = "device"


def link_traffic(m: Operation, tiling: Tiling, attributes: Mapping[str, Any], resources: Resources | None, cost: Cost) -> dict[str, int]:
    """Return the bytes of a cost by link, `SOURCE → SINK`; they add up to all of its bytes."""
    if resources is None:
        return {}
    places = memories_of(m, tiling, attributes, resources)
    traffic: Counter[str] = Counter()
    for tensor, byte_count in cost.moved.items():
        traffic[_link_of(resources, places.get(tensor, ""), tensor in m.axes.results)] += byte_count
    return {name: n for name, n in traffic.items() if n}


def _link_of(resources: Resources, memory: str, is_result: bool) -> str:
    """Return the name of the link between the host and a memory, in the direction of operands or of results."""
    ends = [(x.sink, x.source) if is_result else (x.source, x.sink) for x in resources.links]  # the host first
    memories = [memory_end for host_end, memory_end in ends if host_end == HOST]
    only = memory if memory in memories else memories[0] if len(set(memories)) == 1 else DEVICE
    return f"{only} → {HOST}" if is_result else f"{HOST} → {only}"
