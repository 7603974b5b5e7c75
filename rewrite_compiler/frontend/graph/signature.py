"""Signatures of ONNX operators: checks of attributes, operand counts and element types against the schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...errors import InputError
from .attributes import TYPE_NAMES
from .header import newest_opset, own_domain
from .opset_upgrade import BY_VERSION, schema_of

# how ONNX spells element types that have another name here
_SPELLINGS = {"float": "float32", "double": "float64", "float8e4m3fn": "float8e4m3"}
# operators whose further operands are of any types
MIXED_TYPES = frozenset({"Loop", "Scan", "If", "SequenceMap"})


@dataclass(frozen=True)
class Signature:
    """The signature of an operator: attribute kinds and which are required, numbers of operands and results, required operands, the
    type parameter of each operand (a variadic last one's is shared by all further ones), and the element types each parameter allows.
    """

    attributes: dict[str, int]
    required_attributes: tuple[str, ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required_inputs: tuple[bool, ...]
    deprecated: bool
    type_parameters: tuple[str, ...]
    is_variadic: bool
    allowed_types: dict[str, frozenset[str]]


@cache
def signature_of(op: str, domain: str, version: int) -> Signature | None:
    """Return the signature of an operator, or None when ONNX does not define it."""
    schema = schema_of(op, domain, version)
    if schema is None:
        return None
    from onnx import defs

    attributes = {name: int(a.type.value) for name, a in schema.attributes.items()}
    required_attributes = tuple(name for name, a in schema.attributes.items() if a.required)
    optional = defs.OpSchema.FormalParameterOption.Optional
    required_inputs = tuple(i.option != optional for i in schema.inputs)
    counts = (int(schema.min_input), int(schema.max_input)), (int(schema.min_output), int(schema.max_output))
    parameters = tuple(str(i.type_str) for i in schema.inputs)
    is_variadic = bool(schema.inputs) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    allowed = {str(c.type_param_str): _element_types(c.allowed_type_strs) for c in schema.type_constraints}
    return Signature(attributes, required_attributes, *counts, required_inputs, bool(schema.deprecated), parameters, is_variadic, allowed)


def _element_types(types: Iterable[str]) -> frozenset[str]:
    return frozenset(_SPELLINGS.get(t[7:-1], t[7:-1]) for t in types if t.startswith("tensor("))


def check_types(op: str, signature: Signature, dtypes: Sequence[str | None]) -> None:
    """Check the element types of operands against the type constraints of the signature; None is an unknown type.

    Raises:
        InputError: a type is not allowed, or operands of one type parameter differ.
    """
    bindings: dict[str, str] = {}
    last = signature.type_parameters[-1:] if signature.is_variadic else ()
    for n, dtype in enumerate(dtypes):
        parameter = signature.type_parameters[n] if n < len(signature.type_parameters) else last[0] if last else ""
        if dtype is None or (signature.is_variadic and n >= len(signature.type_parameters) - 1 and op in MIXED_TYPES):
            continue
        allowed = signature.allowed_types.get(parameter) or _element_types([parameter])
        if allowed and dtype not in allowed:
            raise InputError("F131", f"operand {n} of {op} must not be of type {dtype}", help=f"it may be {', '.join(sorted(allowed))}")
        if parameter in signature.allowed_types and bindings.setdefault(parameter, dtype) != dtype:
            raise InputError("F131", f"operand {n} of {op} must be of type {bindings[parameter]}, as those before it, not {dtype}")


def check_node(node: Any, imports: dict[str, int], function: Any, place: str) -> None:
    """Check a node against its operator's schema; operators without a schema pass.

    Raises:
        InputError: the operator, its domain, an attribute, or a number of operands or results is not valid.
    """
    domain = own_domain(node.domain)
    if not node.op_type:
        raise InputError("F130", "a node must name its operator", place=place)
    if domain not in imports:
        name = domain or "ai.onnx"
        raise InputError("F111", f'{node.op_type} is of the domain "{name}", whose operator set is not imported', place=place)
    if function is not None:
        _check_call(node, function, place)
        return
    signature = signature_of(node.op_type, domain, imports[domain])
    if signature is None:
        if domain == "" and schema_of(node.op_type, domain, newest_opset()) is not None:
            raise InputError("F111", f"{node.op_type} is not yet part of operator set {imports[domain]}", place=place)
        return
    if signature.deprecated and node.op_type not in BY_VERSION:
        raise InputError("F111", f"{node.op_type} is no longer part of operator set {imports[domain]}", place=place)
    _check_attributes(node, signature, place)
    _check_operands(node, signature, place)


def _check_call(node: Any, function: Any, place: str) -> None:
    for kind, actual, formal in (("operands", node.input, function.input), ("results", node.output, function.output)):
        if len(actual) > len(formal):
            raise InputError("F131", f'function "{function.name}" has {len(formal)} {kind}, not {len(actual)}', place=place)


def _check_attributes(node: Any, signature: Signature, place: str) -> None:
    for a in node.attribute:
        expected = signature.attributes.get(a.name)
        if expected is None:
            attribute_names = ", ".join(sorted(signature.attributes)) or "none"
            raise InputError(
                "F130", f'{node.op_type} has no attribute "{a.name}"', place=place, help=f"its attributes are {attribute_names}"
            )
        if a.type != expected and expected:
            actual = TYPE_NAMES.get(a.type, str(a.type))
            raise InputError("F130", f'attribute "{a.name}" of {node.op_type} must be {TYPE_NAMES[expected]}, not {actual}', place=place)
    names = {a.name for a in node.attribute}
    if len(names) != len(node.attribute):
        duplicate = next(a.name for n, a in enumerate(node.attribute) if a.name in [b.name for b in node.attribute[:n]])
        raise InputError("F130", f'attribute "{duplicate}" is given twice', place=place)
    missing = next((name for name in signature.required_attributes if name not in names), None)
    if missing is not None:
        raise InputError("F130", f'{node.op_type} needs the attribute "{missing}"', place=place)


def _check_operands(node: Any, signature: Signature, place: str) -> None:
    for kind, names, (low, high) in (("operands", node.input, signature.inputs), ("results", node.output, signature.outputs)):
        if not low <= len(names) <= high:
            expected = f"{low} to {high}" if high > low else f"{low}"
            expected = f"at least {low}" if high > 1 << 20 else expected
            raise InputError("F131", f"{node.op_type} has {expected} {kind}, not {len(names)}", place=place)
    for n, name in enumerate(node.input):
        is_required = signature.required_inputs[n] if n < len(signature.required_inputs) else signature.is_variadic
        if is_required and not name:
            raise InputError("F122", f"operand {n} of {node.op_type} is required and must not be empty", place=place)
