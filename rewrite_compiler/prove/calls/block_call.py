"""A call on a wide and on a narrow design, and both drivers recorded."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Any

from ...ila.verification.lane_correspondence import LaneCorrespondence, instruction_correspondence
from ...readings.smt.normal_form_evaluator import variables
from ...readings.smt.polynomial_terms import Terms
from ...target import Blocks, Mapping, Stay, Target
from ..mappings.draws import ties
from ..mappings.mappings import PREVIOUS_CALL_MARK, formats_at, run_call, shapes_at, with_results
from .stream_correspondence import Recorder, StreamCorrespondence

Instructions = dict[str, LaneCorrespondence]


@dataclass(frozen=True)
class BlockCall:
    """A call on a wide and on a narrow design."""

    wide: Target
    narrow: Target
    mapping: Mapping
    narrow_mapping: Mapping
    sizes: MappingOf[str, Any]
    blocks: Blocks
    stay: Stay | None

    @property
    def narrow_sizes(self) -> dict[str, Any]:
        """Sizes in elements; what follows from a size follows from that in elements."""
        m, lanes = self.mapping, self.blocks.lanes
        operand_sizes = {
            d: n for d, n in self.sizes.items() if d in {e for v in m.operands for e in m.axes.of[v.name]} or d in dict(m.statics)
        }
        narrow = {d: -(-n // lanes[d]) if d in lanes else n for d, n in operand_sizes.items()}
        tied = {d: factor * narrow[of] for d, (of, factor) in ties(m).items() if of in narrow and self.sizes[d] == factor * self.sizes[of]}
        return with_results(m, {**narrow, **tied})

    def lanes_of(self, tensor: str) -> dict[int, int]:
        """Return the axes of a tensor that elements have lanes along, and how many."""
        lanes = ((axis, self.blocks.lanes.get(d, 1)) for axis, d in enumerate(self.mapping.axes.of[tensor]))
        return {axis: n for axis, n in lanes if n > 1}


@dataclass(frozen=True)
class Recorded:
    """What a driver did on a device that records, with the variables of the operands, those of the call before marked."""

    device: Recorder
    operands: MappingOf[str, Any]
    results: tuple[Any, ...]


def recorded(call: BlockCall, m: Mapping, sizes: MappingOf[str, Any]) -> Recorded:
    """Return what the driver of a call did."""
    terms = Terms(unbounded=True)
    recorder, formats, shapes = Recorder(terms), formats_at(m), shapes_at(m, sizes)
    marks = ("", PREVIOUS_CALL_MARK) if call.stay is not None and call.stay.present else ("",)
    operands = {n + mark: variables(terms, n + mark, shape, formats[n].codes) for mark in marks for n, shape in shapes.items()}

    def symbolic(mark: str) -> dict[str, Any]:
        return {n: operands[n + mark] for n in shapes}

    results = run_call(m, recorder, sizes, symbolic(""), call.stay, symbolic)
    return Recorded(recorder, operands, results if isinstance(results, tuple) else (results,))


def recorded_streams(call: BlockCall, wide: Recorded, narrow: Recorded, instructions: Instructions) -> StreamCorrespondence:
    """Return the streams of both designs, which are the same up to lanes; `instructions` are those that have been compared.

    Raises:
        LanesDiffer: they are not.
    """
    streams = StreamCorrespondence(wide.device.events, narrow.device.events)
    for name in dict.fromkeys(e.name for e in wide.device.events if e.kind == "issue"):
        if name not in instructions:
            instructions[name] = instruction_correspondence(call.wide.ila(), call.narrow.ila(), name)
    streams.compare(instructions)
    return streams
