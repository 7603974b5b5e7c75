"""The walk over a model's nodes: each is folded, lowered to core operators, expanded from a function, or kept opaque."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import FlexmatchError, InputError
from ...ir.program import OpaqueOp, Value
from ...ops.op import ShapeError
from ..classical import operators as classical
from ..classical.types import check_lengths
from ..file.weight_payloads import NO_PAYLOADS, Payloads
from ..graph.attributes import attribute_values
from ..graph.functions import Inliner, imports_of_function, key_of_call, with_attributes
from ..graph.header import own_domain
from ..graph.opaque import canonical_node, key_of, read_names
from ..graph.opset_upgrade import BY_VERSION, Upgrader, schema_of
from ..graph.scope import NodeContext, Scope
from ..graph.signature import check_types, signature_of
from ..normalise import BY_DOMAIN
from ..normalise.quantised import record_codes
from ..site.constant_folding import fold
from ..site.context import Absorption, Context, UnknownShape, Unsupported, checkpoint, embed_tensors, roll_back
from ..site.site import Site
from .declared_types import result_types
from .mac_counts import macs_of
from .sequences import is_sequence_operator, lower_sequence
from .unroll_loops import UNROLLED, check_scan
from .unsized_regions import UnsizedRegions

# source operators that never leave an operation, with the reason
_WITHOUT_OPERATION = {
    "Identity": Absorption.ALIAS,
    "Dropout": Absorption.DROPOUT,
    "Cast": Absorption.SAME_TYPE,
    "CastLike": Absorption.SAME_TYPE,
}
_BITWISE = {"BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"}
_BITWISE_REASON = "no core operators compute with the bits of a word; with one bit an element, products and sums of codes do"
# source operators that compare and choose elements; they compute nothing an accelerator could take
_SELECTION = {"Where", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or", "IsNaN", "Cast"}


class Importer:
    """The state of an import: its context, the model's functions, and operator set conversions."""

    def __init__(self, context: Context, functions: Mapping[tuple[str, str, str], Any], file: str) -> None:
        self.context = context
        self.functions = functions
        self.file = file
        self.upgrader = Upgrader(context.opset)
        self.regions = UnsizedRegions(context)

    def lower(self, nodes: Sequence[tuple[int, Any]], body: NodeContext) -> None:
        """Lower the nodes of a graph or function, with their source indices, in an order of definitions before uses.

        Raises:
            InputError: expansion exceeds the limit on nodes or nesting, or a node is not valid.
        """
        self.context.lowered_nodes += len(nodes)
        if self.context.lowered_nodes > self.context.limits.nodes:
            raise InputError(
                "F105", f"the model must have at most {self.context.limits.nodes} nodes with its functions expanded", place=self.file,
                help="raise --limits nodes=",
            )  # fmt: skip
        if body.depth > self.context.limits.nesting:
            sentence = f"functions and subgraphs must be nested at most {self.context.limits.nesting} deep"
            raise InputError("F125", sentence, place=self.file, help="raise --limits nesting=")
        places = [self._place(n, number) for number, n in nodes]
        version = body.imports.get("", 1)
        inliner = Inliner(self.functions, version, self.context.limits.nodes)
        nodes = [(number, inliner.inlined(n)) for number, n in nodes]
        for (number, node), parts, place in zip(
            nodes, self.upgrader.replacements([n for _, n in nodes], version, places), places, strict=True
        ):
            origin = number if body.origin is None else body.origin
            is_upgraded = len(parts) != 1 or parts[0] is not node
            for part in parts:
                opset = self.context.opset if is_upgraded or part.op_type not in BY_VERSION else version
                self._lower_node(part, body, opset, origin, place)

    def _place(self, node: Any, number: int) -> str:
        return f'{self.file}:node "{node.name or f"{node.op_type}_{number}"}"'

    def _lower_node(self, node: Any, body: NodeContext, version: int, origin: int, place: str) -> None:
        if self.regions.reads_one(node):
            self.regions.lower(node, body, origin, self.functions)
            return
        start = checkpoint(self.context)
        try:
            self._lower_sized_node(node, body, version, origin, place)
        except UnknownShape as refusal:
            if body.depth:
                raise
            roll_back(self.context, start)
            self.regions.lower(node, body, origin, self.functions, refusal)

    def _lower_sized_node(self, node: Any, body: NodeContext, version: int, origin: int, place: str) -> None:
        site = self._site(node, body, version, origin, place)
        node_count = len(self.context.builder.nodes)
        try:
            function = self.functions.get(key_of_call(node))
            values = self._call(site, node, function, body) if function is not None else self._results(site, node, body)
        except FlexmatchError as error:
            raise error.at(place) from None
        for name, v in zip(node.output, values, strict=False):
            if name and v is not None:
                body.scope.values[name] = v
        self._account(site, values, len(self.context.builder.nodes) > node_count)

    def _account(self, site: Site, values: Sequence[Value | None], has_operation: bool) -> None:
        """Record why a source node may leave no operation; one that left some can only be unread."""
        if has_operation:
            self.context.reasons[site.origin] = Absorption.UNUSED
        else:
            is_alias = all(v is None or v in site.inputs for v in values)
            reason = _WITHOUT_OPERATION.get(site.op, Absorption.ALIAS) if is_alias else Absorption.FOLDED
            self.context.reasons.setdefault(site.origin, reason)

    def _site(self, node: Any, body: NodeContext, version: int, origin: int, place: str) -> Site:
        domain = own_domain(node.domain)
        takes_sequences = is_sequence_operator(domain, node.op_type)
        absent = {name for name in node.input if not name or (takes_sequences and body.scope.find_sequence(name) is not None)}
        inputs = tuple(self._find(name, body.scope, place) if name not in absent else None for name in node.input)
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        outputs = tuple(body.scope.prefix + o if o else "" for o in node.output)
        opset = version if domain == "" else body.imports.get(domain, 1)
        return Site(self.context, node.op_type, domain, opset, inputs, outputs, attribute_values(node.attribute, place), origin, place)

    def _find(self, name: str, scope: Scope, place: str) -> Value:
        v = scope.find(name)
        if v is None and scope.find_sequence(name) is not None:
            raise InputError("F133", f'"{name}" must be a tensor, not sequence', place=place)
        if v is None:
            raise InputError("F122", f'input "{name}" is not defined before it is read', place=place)
        return v

    def _results(self, site: Site, node: Any, body: NodeContext) -> Sequence[Value | None]:
        if is_sequence_operator(site.domain, site.op):
            return self._sequence_results(site, node, body)
        self._check_types(site)
        check_lengths(site)
        results = fold(site)
        if results is not None:
            constants = [self.context.constant(x, name) if name else None for x, name in zip(results, site.outputs, strict=False)]
            record_codes(site, constants)
            return constants
        start = checkpoint(self.context)
        try:
            values = self._lowered(site, node, body)
        except Unsupported as reason:
            roll_back(self.context, start)
            expansion = self._expanded_definition(site, node, body)
            return self._opaque(site, node, body, str(reason)) if expansion is None else expansion
        self._name_results(site, values, start.values)
        return values

    def _sequence_results(self, site: Site, node: Any, body: NodeContext) -> Sequence[Value | None]:
        """Return the tensor that a node of sequences gives; a sequence that it gives gets its name in the scope."""
        start = len(self.context.builder.types)
        result = lower_sequence(site, body.scope.find_sequence(node.input[0]) if node.input else None)
        if isinstance(result, tuple):
            body.scope.sequences[node.output[0]] = result
            return [None]
        self._name_results(site, [result], start)
        return [result]

    def _check_types(self, site: Site) -> None:
        signature = signature_of(site.op, site.domain, site.version)
        if signature is not None:
            check_types(site.op, signature, [None if v is None else site.type(v).dtype for v in site.inputs])
        elif site.domain != "com.microsoft":
            self.context.note(f"{site.label} is not an operator that ONNX defines; whether the host can run it is not known")

    def _lowered(self, site: Site, node: Any, body: NodeContext) -> Sequence[Value | None]:
        if site.domain == "" and site.op == "If":
            return self._branch(site, body)
        if site.domain == "" and site.op in UNROLLED:
            return self._steps(site, body)
        lowering = BY_DOMAIN.get(site.domain, {}).get(site.op)
        if lowering is None:
            raise Unsupported(_BITWISE_REASON if site.domain == "" and site.op in _BITWISE else "no core operators express it")
        return lowering(site)

    def _name_results(self, site: Site, values: Sequence[Value | None], start: int) -> None:
        """Give results computed here the names the model has for them."""
        for name, v in zip(site.outputs, values, strict=False):
            if name and v is not None and v >= start and v not in self.context.builder.constants:
                self.context.builder.names[v] = self.context.unique(name)

    def _branch(self, site: Site, body: NodeContext) -> Sequence[Value | None]:
        branch = "then_branch" if np.all(site.required_data(0, "branches")) else "else_branch"
        graph = site.attributes[branch]
        counts = [len(site.attributes[name].output) for name in ("then_branch", "else_branch")]
        if counts != [len(site.outputs)] * 2:
            raise ShapeError(f"Branches of If must give {len(site.outputs)} results, not {counts[0]} and {counts[1]}")
        scope = Scope({}, body.scope, f"{site.name}/")
        self.define_initializers(graph, scope)
        self.lower(list(enumerate(graph.node)), replace(body, scope=scope, origin=site.origin, depth=body.depth + 1, declared={}))
        return [self._find(o.name, scope, site.place) for o in graph.output]

    def _steps(self, site: Site, body: NodeContext) -> Sequence[Value | None]:
        """Return the results of a Scan or Loop unrolled; one that cannot be unrolled stays opaque."""
        if site.op == "Scan":
            check_scan(site)
        opaque = dict(self.context.builder.opaque)
        try:
            return UNROLLED[site.op](site, body, self.lower, self.define_initializers)
        except (FlexmatchError, Unsupported) as reason:
            self.context.builder.opaque = opaque
            raise Unsupported(reason.problem.sentence if isinstance(reason, FlexmatchError) else str(reason)) from None

    def define_initializers(self, graph: Any, scope: Scope, payloads: Payloads = NO_PAYLOADS) -> None:
        """Add the constants of a graph, sparse ones as dense; `payloads` are the raw bytes of those whose messages have none."""
        for s in graph.sparse_initializer:
            data, dtype = self.context.sparse(s, f'Sparse initializer "{s.values.name}"')
            scope.values[s.values.name] = self.context.constant(data, scope.prefix + s.values.name, dtype)
        for n, t in enumerate(graph.initializer):
            data, dtype = self.context.tensor(t, f'Initializer "{t.name}"', payloads.get(n))
            scope.values[t.name] = self.context.weight(data, scope.prefix + t.name, dtype)

    def _call(self, site: Site, node: Any, function: Any, body: NodeContext) -> Sequence[Value | None]:
        """Lower the body of a function of the model in place of its call."""
        scope = Scope({}, None, f"{next((o for o in site.outputs if o), site.op)}/")
        for n, name in enumerate(function.input):
            if site.has(n):
                scope.values[name] = site.value(n)
        imports = imports_of_function(function)
        nodes = [with_attributes(n, node, function) for n in function.node]
        for inner in nodes:
            inner.input[:] = [i if scope.find(i) is not None or i not in function.input else "" for i in inner.input]
        function_body = NodeContext(scope, {**body.imports, **imports}, site.origin, body.depth + 1)
        self.lower(list(enumerate(nodes)), function_body)
        return [self._find(o, scope, site.place) if name else None for o, name in zip(function.output, site.outputs, strict=False)]

    def _expanded_definition(self, site: Site, node: Any, body: NodeContext) -> Sequence[Value | None] | None:
        """Return the results of an operator that ONNX defines as a function, when all computation in it is lowered; else None."""
        function = _definition(site, node)
        if function is None:
            return None
        start = checkpoint(self.context)
        try:
            values = self._call(site, node, function, body)
        except (FlexmatchError, Unsupported):
            values = None
        if values is not None and (site.domain == classical.DOMAIN or self._is_understood(start.nodes)):
            self._name_results(site, values, start.values)
            return values
        roll_back(self.context, start)
        return None

    def _is_understood(self, start: int) -> bool:
        """Tell whether the operations from `start` on are core operators, or matrix products with nothing but selection around them."""
        nodes = self.context.builder.nodes[start:]
        opaque_ops = [self.context.builder.opaque[str(n.attribute("key"))] for n in nodes if n.op == "opaque"]
        products = any(n.operator is not None and n.operator.macs is not None for n in nodes)
        return not opaque_ops or (products and all(op.op_type in _SELECTION for op in opaque_ops))

    def _opaque(self, site: Site, node: Any, body: NodeContext, reason: str) -> Sequence[Value | None]:
        if site.op in BY_VERSION and site.domain == "" and site.version < self.context.opset:
            raise InputError("F111", f"{site.op} of operator set {site.version} has no conversion to {self.context.opset}")
        names = read_names(node)
        operands = {name: self._find(name, body.scope, site.place) for name in names}
        types = result_types(site, node, operands, body.declared, reason)
        payload = canonical_node(node)
        embed_tensors(self.context, payload)
        op = OpaqueOp(site.op, site.domain, payload.SerializeToString(deterministic=True), reason, site.version, macs_of(site, node, types))
        key = key_of(op, len(self.context.builder.nodes))
        results = iter(self.context.opaque(op, key, list(operands.values()), types, (site.origin,), site.name))
        values = [next(results) if o else None for o in node.output]
        for name, v in zip(site.outputs, values, strict=True):
            if v is not None:
                self.context.builder.names[v] = self.context.unique(name)
        return values


def _definition(site: Site, node: Any) -> Any:
    """Return the function that defines an operator, ONNX's or ours for classical models, or None."""
    from onnx import FunctionProto

    from .declared_types import type_proto

    if site.domain == classical.DOMAIN:
        return classical.definition(site)
    schema = schema_of(site.op, site.domain, site.version) if site.domain == "" else None
    if schema is None:
        return None
    if schema.has_function:
        function = schema.function_body
    elif schema.has_context_dependent_function:
        builder = site.context.builder
        types = [b"" if v is None else type_proto(builder.types[v]).SerializeToString() for v in site.inputs]
        payload = schema.get_context_dependent_function(node.SerializeToString(), types)
        if not payload:
            return None
        function = FunctionProto.FromString(payload)
    else:
        return None
    if not function.opset_import:
        function.opset_import.add(domain="", version=site.version)
    defaults = [a.default_value for a in schema.attributes.values() if a.default_value.type]
    function.attribute_proto.extend(defaults)
    return function
