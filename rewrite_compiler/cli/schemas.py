"""The documents as tables: one line a value, its path, its kind, and the JSON schema that follows.

A path is written as in the reference: `a.b`, `list[].b`, `by_name.*`. A `?` behind a name means that the value may be null,
a `~` that the key may be absent, `~?` both. Kinds: text, flag, count (a whole number from 0 on), number, any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "flag": {"type": "boolean"},
    "count": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "object": {"type": "object"},
    "any": {},
}

PLAN = """
model.path text | model.sha256 text | model.ops count | model.opset count
targets[].name text | targets[].parameters.* text | targets[].sha256 text
rules_sha256 text
settings.exact flag | settings.shapes.*[] count | settings.only[] text | settings.without[] text | settings.on[] text
settings.scaled[] text | settings.rules[] text | settings.trusted[] text | settings.objective text
settings.host_costs.source text | settings.host_costs.sha256 text | settings.host_costs.picoseconds?.call count
settings.host_costs.picoseconds?.mac.* count | settings.host_costs.picoseconds?.element.* count
calibrated flag
calibration?.source text | calibration?.sha256 text | calibration?.samples count | calibration?.method text
calibration?.formats_sha256 text
calibration?.tensors[].offload text | calibration?.tensors[].tensor text | calibration?.tensors[].method text
calibration?.tensors[].magnitude number | calibration?.tensors[].largest number
counts.*.* count | lowered_counts.*.* count | exact_counts.*.* count | device_calls.*.* count
offloads[].id text | offloads[].target text | offloads[].operation text | offloads[].parts[] text
offloads[].mapping~.model text | offloads[].mapping~.cycles count | offloads[].mapping~.energy_fj count
offloads[].mapping~.energy_source text | offloads[].mapping~.elements count
offloads[].mapping~.picojoule_microseconds count | offloads[].mapping~.products[].elements count
offloads[].mapping~.products[].problem object | offloads[].mapping~.products[].cycles count
offloads[].mapping~.products[].energy_fj count | offloads[].mapping~.products[].evaluated count
offloads[].mapping~.products[].gap? number | offloads[].mapping~.products[].levels[] object
offloads[].runtime_weights~[] text | offloads[].nodes[] text | offloads[].shape.* count | offloads[].macs count
offloads[].because[].rule text | offloads[].because[].at text | offloads[].because[].grade text
offloads[].because[].covers text | offloads[].because[].ulp? number
offloads[].because[].share_of_rounding? number | offloads[].because[].error_bound_ratio? number
offloads[].certificate text | offloads[].device_calls count
offloads[].tiles.* count | offloads[].formats.* object
offloads[].resident?.inputs[] text | offloads[].resident?.outputs[] text | offloads[].resident?.constants.* count
offloads[].resident?.saved_bytes count | offloads[].resident?.why_not.* text
offloads[].cost?.lanes[].resource text | offloads[].cost?.lanes[].busy count | offloads[].cost?.lanes[].waits.* count
offloads[].cost?.cycles count | offloads[].cost?.hidden_cycles count
offloads[].cost?.compute_cycles count | offloads[].cost?.transfer_cycles count
offloads[].cost?.clock_hertz count | offloads[].cost?.nanoseconds count | offloads[].cost?.host_nanoseconds count
offloads[].cost?.bytes count | offloads[].cost?.host_bytes count | offloads[].cost?.links.* count
offloads[].cost?.traffic.* count | offloads[].cost?.added_elements count | offloads[].cost?.unit text
offloads[].cost?.levels?.*.*.reads count | offloads[].cost?.levels?.*.*.writes count
offloads[].cost?.utilisation? number | offloads[].cost?.bound text | offloads[].cost?.estimated flag
application?.host_nanoseconds count | application?.nanoseconds count
host[].node text | host[].op text | host[].why_not text | uncounted[] text
absorbed[].node text | absorbed[].by text
inserted[].op text | inserted[].bytes count | inserted[].for[] text
formats[].tensor text | formats[].target text | formats[].format text | formats[].parameters object | formats[].from text
egraph.regions count | egraph.forms count
egraph.rounds count | egraph.e_nodes count | egraph.e_classes count | egraph.stop.reason text | egraph.stop.detail text
egraph.growth[] count | egraph.rules count
egraph.fired[].rule text | egraph.fired[].at text | egraph.fired[].matches count | egraph.fired[].new_nodes count
extraction.objective text | extraction.cost.* number | extraction.bound.* number | extraction.gap? number | extraction.status text
residency.*.bytes count | residency.*.saved_bytes count | residency.*.saved.* count | residency.*.bound_bytes count
residency.*.operands count | residency.*.made_on_device count | residency.*.stay_on_device count
validated~[].call text | validated~[].offloads[] text | validated~[].by text | validated~[].why_not_more text
validated~[].unproved_control[] text
limited[] text | notes[] text
plan_sha256~ text | onnx_sha256~ text
run object
"""

COSIM = """
model.path text | model.sha256 text
targets[] text | metric text | lower_is_better flag | samples count
data.source text | data.sha256 text
calibration?.source text | calibration?.sha256 text | calibration?.samples count | calibration?.method text
calibration?.formats_sha256 text
reference.value? number | accelerated.value? number
hosts?.other text | hosts?.value? number | hosts?.values count | hosts?.differing_values count
hosts?.differing_samples count | hosts?.largest_difference number
paired.difference? number | paired.interval?[]? number | paired.method? text
paired.better? count | paired.worse? count | paired.same? count | paired.same_predictions? number
paired.mcnemar?.p_value number | paired.mcnemar?.interval[] number
offloads[].id text | offloads[].relative_error? number | offloads[].cumulative_error? number | offloads[].max_abs_error? number
offloads[].compared_codes? count | offloads[].differing_codes? count
offloads[].engine text | offloads[].validated_samples count | offloads[].certified flag
offloads[].saturated number | offloads[].range_in[]? number | offloads[].range_out[]? number
offloads[].tensors[].tensor text | offloads[].tensors[].format text | offloads[].tensors[].values count
offloads[].tensors[].zeros count | offloads[].tensors[].saturated count | offloads[].tensors[].underflowed count
offloads[].tensors[].range[]? number | offloads[].tensors[].largest number | offloads[].tensors[].relative_error? number
offloads[].tensors[].histogram.first_exponent? number | offloads[].tensors[].histogram.counts[] count
attribution? object
first_diverging?.offload text | first_diverging?.relative_error number | first_diverging?.threshold number
simulator.engine text | simulator.validated count
simulator.tier text | simulator.host text | simulator.instructions count | simulator.audited count
compared_samples count | warnings[] text | notes[] text
run.wall_seconds number | run.cpu_seconds_per_sample? number | run.reference_cpu_seconds_per_sample? number
run.batch count | run.threads count | run.resumed_samples count | run.scheduler? text
run.reference_kept flag | run.fallbacks[].offload text | run.fallbacks[].why[] text | run.fallbacks[].cpu_seconds number
"""

PROOF = ("name text", "at text", "verdict text", "strength text", "evidence text", "counterexample? text", "grade text", "ranks? count",
         "seconds number", "suggestion? text", "left_out? text", "measured[].dtype text", "measured[].samples count",
         "measured[].ulp number",
         "measured[].share_of_rounding number", "measured[].error_bound_ratio? number", "kept? text")  # fmt: skip
PROVE = (
    "\n".join(f"{kind}[].{row}" for kind in ("rules", "mappings") for row in PROOF)
    + """
ilas[].name text | ilas[].instructions count | ilas[].decodes_disjoint flag | ilas[].holes[] text
ilas[].holes_unknown any | ilas[].problems[] text
"""
)

EXPLAIN = """
code~ text | means~ text | remedy~ text
node~ text | place~ text | offload~ object | op~ text | why_not~ text | by~ text
replay~.rules?[] text | replay~.e_nodes count | replay~.compared count | replay~.difference number | replay~.agrees flag
outside~[] text
counterfactuals~[].option text | counterfactuals~[].becomes[] text | counterfactuals~[].calls count
counterfactuals~[].macs count | counterfactuals~[].macs_before count
layers~[].name text | layers~[].repeats count | layers~[].architecture text | layers~[].model text | layers~[].objective text
layers~[].cycles count | layers~[].energy_fj? count | layers~[].utilisation number
layers~[].limits[].part text | layers~[].limits[].cycles count
layers~[].nest[].level text | layers~[].nest[].loops[].dimension text | layers~[].nest[].loops[].steps count
layers~[].nest[].parallel[].dimension text | layers~[].nest[].parallel[].parts count
layers~[].energy[].at text | layers~[].energy[].tensor text | layers~[].energy[].energy_fj count
layers~[].residence[].level text | layers~[].residence[].tensor text | layers~[].residence[].tile count
layers~[].residence[].capacity? count
layers~[].residence[].arrivals count | layers~[].residence[].instances count | layers~[].residence[].uses? number
layers~[].widths~[].link text | layers~[].widths~[].width count | layers~[].widths~[].enough count
layers~[].changes~[].parameters.* count | layers~[].changes~[].cycles count | layers~[].changes~[].energy_fj? count
layers~[].changes~[].saved number | layers~[].why~ object
nodes~[].number count | nodes~[].node text | nodes~[].op text | nodes~[].place text | nodes~[].offloads[] text | nodes~[].why text
"""
LIST = """
targets[].name text | targets[].about text | targets[].parameters.*[] text | targets[].proof text
mappings[].name text | mappings[].about text | mappings[].at text | mappings[].proof text
rules[].name text | rules[].about text | rules[].at text | rules[].grade text | rules[].phase text
formats[].name text | formats[].about text
apps[].name text | apps[].about text
"""
CONFIG = "file? text | settings[].key text | settings[].value any | settings[].origin text"
EMIT = """
what text | target~ text | words~ count | word_bits~ count | files[].path text | files[].bytes count | files[].sha256 text
traces~[].target text | traces~[].commands count | traces~[].phases[].offload text | traces~[].phases[].phase text
traces~[].phases[].constant flag | traces~[].phases[].commands count | traces~[].phases[].bytes count
traces~[].phases[].cycles? count
instructions~[] text | outside~.* text | clocks~.* count | proved~[] text | bounded~[] text
replay~.target text | replay~.target_changed flag | replay~.commands count | replay~.compared count | replay~.different count
replay~.differences[].number count | replay~.differences[].command text | replay~.differences[].recorded text
replay~.differences[].found text | replay~.differences[].section text
"""
OFFLOAD = """
id text | target text | operation text | program[] text | call count | calls count
commands[].phase text | commands[].assembly text | commands[].mmio text | commands[].times count
"""
MEMORY = ("name text", "width_bits count", "banks count", "depth count", "instances count", "element_bytes count", "row_bytes count",
          "buffering count")  # fmt: skip
TARGET = (
    """
name text | parameters.* text | sha256 text
operations[].name text | operations[].operation text | operations[].units.* count | operations[].priced flag
resources?.clock_hertz count | resources?.clock_source text | resources?.notes[] text
"""
    + "\n".join(f"resources?.memories[].{row}" for row in MEMORY)
    + """
resources?.memories[].capacity_bytes count | resources?.memories[].read_energy any | resources?.memories[].write_energy any
resources?.units[].name text | resources?.units[].operations[] text | resources?.units[].types[] text | resources?.units[].step.* count
resources?.units[].packs.* count
resources?.units[].instances count | resources?.units[].per_cycle count | resources?.units[].energy any
resources?.links[].source text | resources?.links[].sink text | resources?.links[].width_bytes count
resources?.links[].cycles count | resources?.links[].latency_cycles count | resources?.links[].port text
macros[].name text | macros[].reason text | macros[].steps[] text | macros[].place text
"""
)
ACG = """
name text | clock?.hertz count | clock?.source text
storages[].name text | storages[].data_width count | storages[].banks count | storages[].depth? count | storages[].instances count
storages[].off_chip flag | storages[].capacity_bits? count | storages[].from text | storages[].energies object
units[].name text | units[].instances count | units[].name_from text
units[].capabilities[].capability text | units[].capabilities[].instruction text | units[].capabilities[].operands[] text
units[].capabilities[].result text | units[].capabilities[].lanes.* count | units[].capabilities[].from text
edges[].source text | edges[].sink text | edges[].instructions[] text | edges[].bits? count | edges[].cycles? count
edges[].latency count | edges[].ends_from text | edges[].width_from? text
opaque[].instruction text | opaque[].reason text | opaque[].reads[] text | opaque[].writes[] text
"""
TRACE = "target text | parameters.* text | sha256 text | about object"
CHECK = """
subject text | kind text | parameters object | good flag
problems[].code text | problems[].sentence text | problems[].place text | problems[].help text
ila? object | golden? object | mappings[] object | rules[] any | seed any
macros[].name text | macros[].reason text
validated~[].call text | validated~[].offloads[] text | validated~[].by text | validated~[].why_not_more text
validated~[].unproved_control[] text
rounding~.ratio any | rounding~.output text | rounding~.unknown text | rounding~.host_operators[] text | rounding~.samples count
rounding~.random flag
conditions~[].rule text | conditions~[].at text | conditions~[].grade text | conditions~[].bound text | conditions~[].places count
conditions~[].evidence text
"""
ILA = """
name text | parameters.* text | inputs[].name text | inputs[].lanes count | inputs[].most any
states[].name text | states[].shape[] count | states[].bits count | states[].signed flag | states[].binding text | states[].reset number
states[].doc text
instructions[].name text | instructions[].at text | instructions[].doc text | instructions[].command text | instructions[].decode text
instructions[].fields[].name text | instructions[].fields[].input text
instructions[].fields[].low count | instructions[].fields[].high count
instructions[].update[] text | instructions[].diagnostics[].code text | instructions[].diagnostics[].sentence text
"""
TOTALS = (
    "offloads", "device_calls", "device_cycles", "bytes", "device_nanoseconds", "host_macs", "host_bytes", "host_nanoseconds",
    "unpriced", "nanoseconds", "moved_bytes",
)  # fmt: skip
SIDES = (("old", "count"), ("new", "count"), ("difference", "number"))
COMPARED = """
{0}.id text | {0}.operation text | {0}.nodes[] text | {0}.shape.* count | {0}.tiles.* count | {0}.device_calls count
{0}.cost?.cycles count | {0}.cost?.bytes count | {0}.cost?.estimated flag
"""
DIFF = (
    """
model.path text | model.sha256 text | model.ops count | model.opset count | objective text | same count
targets.*.name text | targets.*.given text | targets.*.parameters.* text | targets.*.sha256 text
specification[].subject text | specification[].old[] text | specification[].new[] text
accuracy?.metric text | accuracy?.samples count | accuracy?.host? number | accuracy?.old? number | accuracy?.new? number
accuracy?.difference? number | accuracy?.interval?[] number | accuracy?.method text | accuracy?.better count | accuracy?.worse count
"""
    + "".join(COMPARED.format(place) for place in ("appeared[]", "vanished[]", "changed[].old", "changed[].new"))
    + "".join(f"totals.{side} {kind}\n" for side, kind in ((f"{s}.{n}", k) for s, k in SIDES for n in TOTALS))
    + "links.old.* count | links.new.* count\n"
)
ADVISE = """
models[] text | target.name text | target.parameters.* text | target.sha256 text | objective text | base.cost.* number
changes[].rank count | changes[].kind text | changes[].name text | changes[].from text | changes[].to text
changes[].cost.* number | changes[].saved.* number | changes[].saved_nanoseconds number | changes[].saved_bytes number
changes[].saved_host_bytes number
""" + "".join(f"{place}.{name} count\n" for place in ("base.totals", "changes[].totals") for name in TOTALS)
LEARN = """
models[] text | offloads count | fragments count | candidates count | judged count | cpu_seconds number
laws[].name text | laws[].text text | laws[].verdict text | laws[].strength text | laws[].evidence text
laws[].gain count | laws[].saves text
"""
LIFT = """
target text | lifted[].name text | lifted[].instructions[] text | lifted[].strength text
refused[].name text | refused[].reason text | written? text
"""
COMPLETION = "shell text | script text"
REDUCE = "model.path text | check text | ops_before count | ops_after count | tests count | outcome text | written text"
SCHEMA = "name text | definition object"

E_CLASS = """
{0}.e_class count | {0}.type text | {0}.known flag | {0}.values[] text | {0}.e_nodes[].op text | {0}.e_nodes[].operands[] count
{0}.e_nodes[].attributes[] any | {0}.e_nodes[].rule text | {0}.e_nodes[].at text | {0}.e_nodes[].chosen flag
"""
EGRAPH = (
    """
model.path text | model.sha256 text | targets[].name text | targets[].parameters.* text | targets[].sha256 text
around text | e_class count | steps count | rounds count | stop.reason text | stop.detail text | e_classes count | e_nodes count
shown[].distance count | cut[].beside count
"""
    + E_CLASS.format("shown[]")
    + E_CLASS.format("cut[]")
)
REPAIR = """
model.sha256 text | targets[] text | metric text | lower_is_better flag | within text
samples.search count | samples.verify count | reference.search number | reference.verify number
before object | holds_already flag | culprit? object | attribution object
proposals[].what text | proposals[].kind text | proposals[].added_bits count
proposals[].changes[].offload text | proposals[].changes[].tensor text | proposals[].changes[].field text
proposals[].changes[].before any | proposals[].changes[].after any
proposals[].parameters[].target text | proposals[].parameters[].parameter text | proposals[].parameters[].value text
proposals[].search object | proposals[].verify? object | proposals[].distinguishable flag | proposals[].against_now?[] number
specification[].what text | specification[].kind text | specification[].search object | specification[].verify object
specification[].distinguishable flag | specification[].added_bits count | specification[].changes[] object
specification[].parameters[] object | specification[].against_now?[] number
front[] text | chosen? text
undecided?.what text | undecided?.samples count | undecided?.interval?[] number | undecided?.method text
"""
SECONDS = "".join(f"{{0}}.{kind}.{figure} number\n" for kind in ("cpu_seconds", "wall_seconds") for figure in ("low", "median", "high"))
BENCH = (
    """
model.path text | model.sha256 text | model.ops count | model.opset count | runs count | offloads count
targets[].name text | targets[].parameters.* text | targets[].sha256 text
egraph.rounds count | egraph.e_nodes count | egraph.e_classes count
rules[].rule text | rules[].at text | rules[].matches count | rules[].new_nodes count | rules[].offloads count
run.rules[].name text | run.rules[].seconds.low number | run.rules[].seconds.median number | run.rules[].seconds.high number
run.phases[].name text | run.simulators[].name text | run.simulators[].tier text
run.simulators[].samples count | run.simulators[].batch count | run.simulators[].threads count | run.simulators[].instructions count
run.simulators[].reference_cpu_seconds?.low number | run.simulators[].reference_cpu_seconds?.median number
run.simulators[].reference_cpu_seconds?.high number
"""
    + SECONDS.format("run.phases[]")
    + SECONDS.format("run.simulators[]")
)
SWEEP = """
model.path text | model.sha256 text | metric text | lower_is_better flag | samples count | data.source text | data.sha256 text
over[].name text | over[].values[] text | reference.value? number
points[].at.* text | points[].value? number | points[].difference? number | points[].interval?[]? number
points[].better? count | points[].worse? count | points[].worst_offload_error number
points[].counts.*.* count | points[].device_calls.*.* count | points[].out_of_range[] text
run object
"""

MAP = """
layers[].name text | layers[].repeats count | layers[].problem object | layers[].architecture text | layers[].mapping[] object
layers[].clusters object
layers[].limits[].part text | layers[].limits[].cycles count
layers[].loops[] text | layers[].cost.model text | layers[].cost.cycles count | layers[].cost.energy_fj? count
layers[].cost.energy_source? text | layers[].cost.traffic.* count | layers[].cost.utilisation number | layers[].cost.counters.*.*.* count
layers[].opinions[].model text | layers[].opinions[].cycles~ count | layers[].opinions[].energy_fj~? count
layers[].opinions[].edp~? count | layers[].opinions[].why_not~ text
layers[].differences[].level text | layers[].differences[].tensor text | layers[].differences[].counter text
layers[].notes[] text | layers[].differences[].values.* count | layers[].differences[].because text
layers[].objective~ text | layers[].value~ count | layers[].bound~? number | layers[].gap~? number
layers[].leaves_rests flag | layers[].remainders~ flag
layers[].evaluated~ count | layers[].legal~ count | layers[].stop~ text | layers[].front~[] object | layers[].points~[] object
front~.points[].cycles count | front~.points[].energy_fj count | front~.points[].choices[] count | front~.is_complete flag
"""
SPACE = "architecture text | layers[].name text | layers[].repeats count | layers[].tilings count | layers[].mappings count"
VARIATION = """
architecture text | parameter text | objective text | points[].at text | points[].cycles count | points[].energy_fj? count
points[].value count | points[].bound? number | points[].layers[] object
"""
ALGORITHMS = """
architecture text | objective text | layout text | layers[].name text | layers[].repeats count | layers[].best text
layers[].algorithms[].name text | layers[].algorithms[].problem object | layers[].algorithms[].layout_elements count
layers[].algorithms[].layout_cycles count | layers[].algorithms[].cycles count | layers[].algorithms[].energy_fj? count
layers[].algorithms[].value number | layers[].algorithms[].mapping object
"""

# the rows of each document by the name in its `schema`
ROWS: Mapping[str, str] = {
    "plan": PLAN, "cosim": COSIM, "prove": PROVE, "demo": "plan object | cosim object", "explain": EXPLAIN, "list": LIST,
    "acg": ACG, "emit": EMIT, "offload": OFFLOAD, "trace": TRACE,
    "config": CONFIG, "check": CHECK, "ila": ILA, "completion": COMPLETION, "reduce": REDUCE, "schema": SCHEMA, "target": TARGET,
    "diff": DIFF, "advise": ADVISE, "learn": LEARN, "lift": LIFT, "repair": REPAIR, "sweep": SWEEP,
    "bench": BENCH, "egraph": EGRAPH, "compare": "reports[].* text",
    "init": "kind text | name text | folder text | files[] text | next[] text",
    "map": MAP, "space": SPACE, "variation": VARIATION, "algorithms": ALGORITHMS,
}  # fmt: skip
VERSION = 1
Tree = dict[str, Any]


def schema_of(name: str) -> Tree:
    """Return the JSON schema of a document; the schemas of plan and report stand inside that of a demo."""
    tree: Tree = {}
    for row in ROWS[name].replace("\n", "|").split("|"):
        if row.strip():
            path, kind = row.split()
            _place(tree, path.replace("[]", ".[]").replace(".[]?", ".?[]").split("."), kind)
    schema = _object(tree)
    schema["properties"] = {"schema": {"const": f"flexmatch.{name}/{VERSION}"}, **schema["properties"]}
    schema["required"] = ["schema", *schema.get("required", ())]
    if name == "demo":
        schema["properties"].update({part: schema_of(part) for part in ("plan", "cosim")})
    return {"$schema": DIALECT, "title": f"flexmatch.{name}/{VERSION}", **schema}


def _place(tree: Tree, steps: list[str], kind: str) -> None:
    """Put a value into the tree of the object it belongs to."""
    first, *rest = steps
    if rest:
        _place(tree.setdefault(first, {}), rest, kind)
    else:
        tree[first] = kind


def _object(tree: Tree) -> Tree:
    if set(tree) == {"*"}:
        return {"type": "object", "additionalProperties": _value("*", tree["*"])}
    properties = {step.rstrip("?~"): _value(step, subtree) for step, subtree in tree.items()}
    required = [step.rstrip("?") for step in tree if not step.rstrip("?").endswith("~")]
    return {"type": "object", "properties": properties, "required": required}


def _value(step: str, subtree: Any) -> Tree:
    """Return the schema of what stands at a step: a kind, the elements of a list, or an object."""
    if isinstance(subtree, str):
        schema = dict(KINDS[subtree])
    else:
        (element,) = [s for s in subtree if s.endswith("[]")] or [""]
        schema = {"type": "array", "items": _element(element, subtree[element])} if element else _object(subtree)
    return {"anyOf": [schema, {"type": "null"}]} if step.endswith("?") else schema


def _element(step: str, subtree: Any) -> Tree:
    return _value("?" if step.startswith("?") else "", subtree)
