"""Plan files: the plan as JSON and as an ONNX model with offloads as local functions; reading a plan back.

Each file names the other's hash. Reading a plan runs no file that it names: it compiles its model again with the
targets and settings it names, which must be shipped, installed or given again, and takes its formats over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..data import Samples, single_samples
from ..errors import AnswerNo, InputError, UsageError
from ..fit.host import table_from
from ..frontend.file.read import MODEL
from ..frontend.graph.emit import FileMetadata, to_onnx
from ..intake import MAX_DOCUMENT_BYTES, FileBound, MalformedText, open_bounded, parse_json, read_bytes
from ..ir.program import Node, Program
from ..lang.formats import IEEE, AdaptivFloat, Fixed, Format, Int
from ..limits import DEFAULT, Limits
from ..target import Target, body_of
from .compile import Options, chosen_targets, compile_model
from .plan.plan import SCHEMA, Calibration, Offload, Plan, to_json
from .plan.schema_check import CALIBRATED, CALIBRATION, PLAN, misfit

FILE = FileBound("a plan", MAX_DOCUMENT_BYTES, "compile the model again")

FORMATS: dict[str, type[Format]] = {kind.__name__.lower(): kind for kind in (AdaptivFloat, Fixed, Int, IEEE)}
MOST, MOST_PLACES = {"width": 64, "exponent_bits": 11}, 2048  # of a format in a plan


@dataclass(frozen=True)
class PlanFiles:
    """The two files of a plan."""

    document: dict[str, Any]
    onnx: bytes


def plan_files(plan: Plan) -> PlanFiles:
    """Return the JSON document and the ONNX model of a plan; each names the other's sha256."""
    document = to_json(plan)
    content = {key: value for key, value in document.items() if key != "run"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    onnx = plan_onnx(plan, FileMetadata(doc="Plan of flexmatch: offloads are local functions.", metadata={"flexmatch.plan_sha256": digest}))
    run = document.pop("run")
    return PlanFiles({**document, "plan_sha256": digest, "onnx_sha256": hashlib.sha256(onnx).hexdigest(), "run": run}, onnx)


def plan_digest(plan: Plan) -> str:
    """Return the SHA-256 of what determines a plan's computation, without notes, run data and statistics."""
    content = {k: v for k, v in to_json(plan).items() if k not in ("run", "notes", "limited", "egraph", "extraction")}
    content["model"] = plan.model["sha256"]
    content["settings"] = {k: v for k, v in plan.settings.items() if k != "rules"}  # covered by rules_sha256; paths do not matter
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def plan_onnx(plan: Plan, about: FileMetadata | None = None) -> bytes:
    """Return the plan's program as an ordinary ONNX model."""
    offloads = {o.node.outputs[0]: o for o in plan.offloads}
    return to_onnx(plan.program, lambda node: _body(plan.program, offloads[node.outputs[0]], node), about=about)


def _body(p: Program, o: Offload, node: Node) -> Program:
    return body_of(o.mapping, [p.types[v] for v in node.inputs], dict(node.attributes))


def read_plan(path: Path, targets: Sequence[Target | str] = (), limits: Limits = DEFAULT, *, rules: Sequence[Path] = ()) -> Plan:
    """Return the plan of a plan JSON file; its model must be where the plan says, relative to the plan or as it is.

    Rule files are code, so those the plan was made with must be given again.

    Raises:
        UsageError: (F100, F101) plan or model is not a file; (F201, F220) an accelerator or rule file must be named again.
        InputError: (F103, F220) the file is not a sound plan; (F106) the model has changed.
        AnswerNo: (F220) rules or targets have changed so that the offloads are others.
    """
    document = _document(path)
    model = _model_path(path, document["model"])
    if not model.is_file():
        raise UsageError("F101", f"there is no file {model}, which the plan was made of", place=str(path), help="put the model back")
    return plan_of_document(document, model, str(path), targets, limits, rules=rules)


def plan_of_document(
    document: MappingOf[str, Any], model: Path, place: str, targets: Sequence[Target | str] = (), limits: Limits = DEFAULT, *,
    rules: Sequence[Path] = (),
) -> Plan:  # fmt: skip
    """Return the plan that a checked document describes, of a model's file; `place` is where refusals point.

    Parameters that `targets` leave at their defaults have the values that the plan was made with.

    Raises:
        UsageError: (F201, F220) an accelerator or rule file must be named again.
        InputError: (F106) the model has changed; (F220) the document's formats are not those of the target.
        AnswerNo: (F220) rules or targets have changed so that the offloads are others.
    """
    if len(rules) != len(document["settings"]["rules"]):
        rule_files = ", ".join(document["settings"]["rules"]) or "none"
        raise UsageError(
            "F220", f"Rule files must be those the plan was made with ({rule_files})", place=place, help="give them with --rules"
        )
    options = _options_of(document["settings"], rules, limits)
    accelerators = chosen_targets(targets or [_target_text(t) for t in document["targets"]], limits)
    plan = compile_model(model, [_as_recorded(t, document["targets"]) for t in accelerators], options)
    if plan.model["sha256"] != document["model"]["sha256"]:
        raise InputError("F106", f"{model} is not the model the plan was made of: its sha256 differs", place=place, help="compile again")
    changed_targets = [t.name for t, old in zip(plan.targets, document["targets"], strict=False) if t.sha256 != old["sha256"]]
    if changed_targets and not targets:
        raise UsageError(
            "F220", f"{changed_targets[0]} is not the accelerator the plan was made for: its sha256 differs", place=place,
            help="name the one that it is to run on with --accel, or compile again",
        )  # fmt: skip
    return _with_formats(
        replace(plan, notes=(*plan.notes, *(f"target {n} changed since the plan" for n in changed_targets))), document, place
    )


def _as_recorded(target: Target, documents: Sequence[MappingOf[str, Any]]) -> Target:
    """Return a target with the parameter values of a plan's own where none are chosen, as far as it has them still."""
    values: dict[str, str] = next((d["parameters"] for d in documents if d["name"] == target.name), {})
    return target.configured({k: v for k, v in values.items() if k not in target.chosen and v in target.parameters.get(k, ())})


def _options_of(settings: MappingOf[str, Any], rules: Sequence[Path], limits: Limits) -> Options:
    """Return the options that a plan's settings record, with rule files and limits."""
    return Options(
        exact=bool(settings["exact"]), shapes={n: tuple(s) for n, s in settings["shapes"].items()}, only=tuple(settings["only"]),
        without=tuple(settings["without"]), on=tuple(settings["on"]), scaled=tuple(settings.get("scaled", ())), rules=tuple(rules),
        trusted=tuple(settings["trusted"]), limits=limits, objective=settings["objective"], host=table_from(settings["host_costs"]),
    )  # fmt: skip


def plan_for_data(plan: Plan, data: Samples, limits: Limits = DEFAULT) -> Plan:
    """Return the plan of its model for one sample where data does not come in the model's fixed batches, else the plan itself.

    Raises:
        InputError: the data fits neither the fixed batch nor single samples.
        UsageError: (F134) the samples of a batch cannot be taken apart.
    """
    shapes = {} if plan.settings["shapes"] else single_samples(plan.source, data, limits)
    path = Path(plan.model["path"])
    if not shapes or not _has_hash(path, plan.model["sha256"]):
        return plan
    rules = [Path(f) for f in plan.settings["rules"]]
    single = compile_model(path, plan.targets, replace(_options_of(plan.settings, rules, limits), shapes=shapes))
    return _with_formats(single, to_json(plan), str(path)) if plan.calibrated else single


def _has_hash(path: Path, sha256: str) -> bool:
    """Tell whether a path that a plan names is a file of a model's size with a hash; it is read in blocks."""
    if not path.is_file() or path.stat().st_size > MODEL.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def is_plan(path: Path) -> bool:
    """Tell whether a file is a plan's JSON or has one beside it."""
    return path.suffix == ".json" or (path.suffix == ".onnx" and _adjacent_plan(path) is not None)


def _adjacent_plan(path: Path) -> Path | None:
    """Return the plan JSON beside a plan's ONNX file, if it names the ONNX file's SHA-256."""
    candidate = path.with_suffix(".json")
    if not path.is_file() or not candidate.is_file():
        return None
    try:
        onnx_digest = parse_json(read_bytes(candidate, FILE)).get("onnx_sha256")
    except (MalformedText, InputError, AttributeError):
        return None
    with open_bounded(path, MODEL) as file:
        return candidate if onnx_digest == hashlib.file_digest(file, "sha256").hexdigest() else None


def plan_json(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the JSON file of a plan and its document; `path` may be the plan's ONNX file."""
    return path if path.suffix == ".json" else _adjacent_plan(path) or path, _document(path)


def _document(path: Path) -> dict[str, Any]:
    file = path if path.suffix == ".json" else _adjacent_plan(path) or path
    if not file.is_file():
        raise UsageError("F101" if not file.exists() else "F100", "a plan must be a file", place=str(file), help="give a plan or a model")
    try:
        document = parse_json(read_bytes(file, FILE))
    except MalformedText as error:
        raise InputError("F103", f"the file is not a plan: {error}", place=str(file), help="compile the model again") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        schema_text = f'"{schema}"' if isinstance(schema, str) else "none"
        raise InputError("F220", f'Schema of a plan must be "{SCHEMA}", not {schema_text}', place=str(file), help="compile the model again")
    calibration = document.get("calibration")
    sentence = misfit(document, PLAN) or ("" if calibration is None else _calibration_misfit(calibration))
    if sentence:
        raise InputError("F220", sentence, place=str(file), help="compile the model again")
    return dict(document)


def _calibration_misfit(calibration: Any) -> str:
    sentence = misfit(calibration, CALIBRATION, "plan.calibration")
    return sentence or misfit(calibration.get("tensors", []), CALIBRATED, "plan.calibration.tensors")


def _model_path(plan: Path, model: MappingOf[str, Any]) -> Path:
    stated_path = Path(model["path"])
    relative_path = plan.parent / stated_path
    return relative_path if not stated_path.is_absolute() and relative_path.is_file() else stated_path


def _target_text(target: MappingOf[str, Any]) -> str:
    if not str(target["name"]).isidentifier():
        raise UsageError(
            "F201", f'the plan was made for the accelerator in {target["name"]}, and a file is run only when the command names it',
            help=f"add --accel {target['name']}",
        )  # fmt: skip
    parameters = ",".join(f"{k}={v}" for k, v in target["parameters"].items())
    return f"{target['name']}:{parameters}" if parameters else str(target["name"])


def _with_formats(plan: Plan, document: MappingOf[str, Any], place: str) -> Plan:
    offload_documents = {o["id"]: o for o in document["offloads"]}
    offloads = []
    for o in plan.offloads:
        if o.id not in offload_documents or offload_documents[o.id]["nodes"] != list(o.nodes):
            raise AnswerNo(
                "F220",
                f"the plan's rules or targets have changed: {o.id} is now {', '.join(o.nodes)}",
                place=place,
                help="compile again",
            )
        try:
            formats = {n: format_from(f) for n, f in offload_documents[o.id]["formats"].items()}
        except InputError as error:
            raise error.at(place) from None
        if formats and formats.keys() != set(o.mapping.format_names):
            format_names = ", ".join(o.mapping.format_names)
            raise InputError(
                "F220",
                f"{o.id} must have formats for {format_names}, not {', '.join(formats)}",
                place=place,
                help="compile the model again",
            )
        expected_formats = o.mapping.formats_for(dict.fromkeys(o.mapping.format_choices, 1.0)) if formats else {}
        mismatch = next((n for n in formats if _device_layout(formats[n]) != _device_layout(expected_formats[n])), None)
        if mismatch is not None:
            expected, actual = _device_layout(expected_formats[mismatch]), _device_layout(formats[mismatch])
            sentence = f"{mismatch} of {o.id} must have the format {expected} of its target, not {actual}"
            raise InputError("F220", sentence, place=place, help="compile the model again")
        if formats and not o.mapping.has_derived_formats(formats):
            sentence = f"{o.id} must have the formats of {', '.join(o.mapping.derived)} that follow from the others"
            raise InputError("F220", sentence, place=place, help="compile the model again")
        offloads.append(replace(o, formats=formats))
    return replace(plan, offloads=tuple(offloads), calibration=_calibration(document.get("calibration")))


def _device_layout(f: Format) -> str:
    """Return the part of a format that is built into a device: all but its scale and rounding."""
    parameters = ", ".join(f"{key}={f.parameters[key]}" for key in ("width", "signed", "exponent_bits") if key in f.parameters)
    return f"{f.name}({parameters})"


def _calibration(document: MappingOf[str, Any] | None) -> Calibration | None:
    if document is None:
        return None
    return Calibration(**{key: document[key] for key in CALIBRATION}, tensors=tuple(document.get("tensors", ())))


def _check_parameters(kind: type[Format], parameters: MappingOf[str, Any]) -> None:
    """Refuse parameters of another type or beyond every use, before numbers of so many bits exhaust memory."""
    field_types = {f.name: f.type for f in fields(kind)}
    if any(type(x).__name__ != field_types.get(name) for name, x in parameters.items()):
        raise TypeError("a parameter of another type")
    if any(abs(x) > MOST.get(name, MOST_PLACES) for name, x in parameters.items() if isinstance(x, int)):
        raise ValueError("a parameter beyond every use")


def format_from(document: MappingOf[str, Any]) -> Format:
    """Return the number format of a format document.

    Raises:
        InputError: (F220) there is no such format, or not with these parameters.
    """
    parameters = {k: v for k, v in document.items() if k != "format"}
    kind = FORMATS.get(str(document.get("format")))
    if kind is None:
        raise InputError("F220", f'there is no number format called "{document.get("format")}"', help=f"known: {', '.join(FORMATS)}")
    try:
        _check_parameters(kind, parameters)
        return kind(**parameters)
    except (TypeError, ValueError, InputError):
        parameters_text = json.dumps(parameters)
        raise InputError(
            "F220", f"there is no number format {kind.__name__.lower()} with {parameters_text}", help="compile the model again"
        ) from None
