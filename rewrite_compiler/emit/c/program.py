"""A plan as a host program in C11: one function for each offload, host operators, and `infer`; the integrator supplies the bus."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from ...compile import Plan
from ...compile.plan.plan import Offload, tensors_of
from ...cosim.metrics.segmentation import segments
from ...errors import InputError
from ...ila import Ila
from ...ir.program import Program, Value
from ...readings.c.printer import c_array
from ...readings.c.runtime import PRELUDE, RUNTIME, called_functions
from ..mmio.inference import Inference
from .bus_functions import MMIO, bus_declarations
from .host import operations_of
from .offload import Unit, moves_suffix, offload_function
from .program_text import COMMAND, HEADER, MOVES, SOURCE
from .resident_weights import stays_of
from .text import fill_template

WORDS = """auto break case char const continue default do double else enum extern float for goto if in inline int long out register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"""
TYPES = {"float32": "float", "int64": "int64_t"}  # of tensors
KEYWORDS = frozenset(WORDS.split())


def program_files(plan: Plan, name: str = "model") -> dict[str, bytes]:
    """Return the C source and header of a plan by file name.

    Raises:
        InputError: F161, a part of the plan has no C form.
        UsageError: C100, the plan is not calibrated.
    """
    inference = Inference(plan)
    p = plan.program
    for v in (*p.inputs, *p.outputs):
        if p.types[v].dtype not in TYPES:
            raise InputError("F161", f"{p.names[v]} must be float32 or int64 to have a C form, not {p.types[v].dtype}")
    names = _identifiers(p)
    unit, ilas = Unit(), {t.name: t.ila() for t in plan.targets}
    place = {v: f"v{v}" for v in range(len(p.types))} | {v: f"in->{names[v]}" for v in p.inputs}
    calls: list[str] = []
    computed: set[Value] = set()
    for segment in segments(plan):
        for node in segment.host.nodes if segment.host is not None else ():
            for n, step in enumerate(operations_of(p, node, unit.tables, f"op{node.outputs[0]}")):
                unit.functions.append(step.function.text)
                calls.append(_checked(f"{step.function.name}({', '.join(['&s', *(place[v] for v in step.values)])})"))
                computed.add(node.outputs[n])
        for o in segment.offloads:
            calls.append(_offload(unit, plan, inference, o, ilas, place))
            computed.update(o.node.outputs)
    constants = {v for n in p.nodes if n.operator is not None for v in n.inputs} & p.constants.keys()
    values = [f"static {TYPES[p.types[v].dtype]} v{v}[{max(1, math.prod(p.types[v].shape))}];" for v in sorted(computed)]
    values += [c_array(f"v{v}", np.ascontiguousarray(p.constants[v]).reshape(-1)) for v in sorted(constants)]
    copies = [
        f"    memcpy(out->{names[v]}, {place[v]}, sizeof({TYPES[p.types[v].dtype]}) * {math.prod(p.types[v].shape)});" for v in p.outputs
    ]
    targets = [t.name for t in plan.targets if any(o.target.name == t.name for o in plan.offloads)]
    fields = {
        "name": name, "guard": f"{name.upper()}_H", "model": _plain(p.name),
        "inputs": _members(p, names, p.inputs, "const "), "outputs": _members(p, names, p.outputs, ""),
        "bus_header": "\n".join(bus_declarations(t, ilas[t], _bus_name(plan, t)) for t in targets),
        "prelude": PRELUDE, "tables": "".join(unit.tables.texts),
        "filling": unit.tables.fill_text, "moves": _moves(plan, ilas, targets), "data": "\n".join(unit.data), "values": "\n".join(values),
        "functions": "\n".join(unit.functions), "calls": "\n".join(f"    {c}" for c in calls), "copies": "\n".join(copies),
        "prepares": "\n".join(f"        {prepare}();" for prepare in unit.prepares),
    }  # fmt: skip
    fields["moves"] = called_functions(fields["moves"], fields["functions"])
    fields["runtime"] = called_functions(RUNTIME, "".join(fields.values()))
    return {f"{name}.h": fill_template(HEADER, fields).encode(), f"{name}.c": fill_template(SOURCE, fields).encode()}


def _offload(unit: Unit, plan: Plan, inference: Inference, o: Offload, ilas: Mapping[str, Ila], place: Mapping[Value, str]) -> str:
    ila = ilas[o.target.name]
    if not ila.externals and not set(MMIO) <= ila.inputs.keys():
        raise InputError("F161", f"{o.target.name} has neither a memory-mapped bus nor a stream, so its commands have no C form")
    prepared = inference.prepared[o.id]
    stays = stays_of(plan, o, frozenset(prepared.constants))
    name, moving = offload_function(unit, prepared, ila, _bus_name(plan, o.target.name), stays)
    tensors = tensors_of(o)
    return _checked(f"{name}({', '.join([*(place[tensors[n]] for n in moving), *(place[v] for v in o.node.outputs)])})")


def _checked(call: str) -> str:
    return f"if ((answer = {call}) != 0) return answer;"


def _bus_name(plan: Plan, target: str) -> str:
    has_several_targets = len({o.target.name for o in plan.offloads}) > 1
    return "mmio_" + re.sub(r"\W", "_", target, flags=re.ASCII) if has_several_targets else "mmio"


def _moves(plan: Plan, ilas: Mapping[str, Ila], targets: list[str]) -> str:
    """Return the functions that move commands, for each memory-mapped accelerator of the plan."""
    mapped = [t for t in targets if not ilas[t].externals]
    return "".join([COMMAND for _ in mapped[:1]] + [_moves_of(ilas[t], _bus_name(plan, t)) for t in mapped])


def _moves_of(ila: Ila, bus: str) -> str:
    flags = [n for n in ila.inputs if n not in MMIO]
    write = f"{bus}_write128(c->address, data)"
    write = f"c->flag ? {bus}_write128_{flags[0]}(c->address, data) : {write}" if flags else write
    return fill_template(MOVES, {"to": moves_suffix(bus), "write": write, "read": f"{bus}_read128(c->address, data)"})


def _members(p: Program, names: Mapping[Value, str], values: tuple[Value, ...], qualifier: str) -> str:
    return "\n".join(f"    {qualifier}{TYPES[p.types[v].dtype]} *{names[v]};  /* {list(p.types[v].shape)} */" for v in values)


def _identifiers(p: Program) -> dict[Value, str]:
    """Return C identifiers of inputs and outputs, as close to the model's names as possible."""
    identifiers: dict[Value, str] = {}
    for v in (*p.inputs, *p.outputs):
        name = re.sub(r"\W", "_", p.names[v], flags=re.ASCII) or "x"
        name = f"_{name}" if name[0].isdigit() or name in KEYWORDS else name
        is_taken = name in identifiers.values()
        identifiers.setdefault(v, f"{name}_{v}" if is_taken else name)
    return identifiers


def _plain(text: str) -> str:
    return re.sub(r"[^\w .-]", "_", text, flags=re.ASCII)
