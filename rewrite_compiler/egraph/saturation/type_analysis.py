"""E-class analysis of types: types of classes that rules have made, by the operators' own shape rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...ir.types import TensorType, result_types
from ..graph.reader import Reader
from ..graph.table_load import Row as Loaded
from ..graph.term_rows import fact_rows, operator_named, term_row

Row = tuple[str, list[Any], Any]  # constructor, arguments, class


class TypeAnalysis:
    """Computes types and numbers of classes that lack them, as rows to load into the e-graph."""

    def __init__(self, reader: Reader, next_number: int) -> None:
        self.reader = reader
        self.next_number = next_number
        self.constructor_of = {c.name: c for c in reader.constructors}
        self.kinds = {r.inputs[0]: r.output for r in reader.rows("kind")}
        self.shapes = {r.inputs[0]: r.output for r in reader.rows("dims")}
        self.number_of = {r.output: reader.egglog.value_to_i64(r.inputs[0]) for r in reader.rows("at")}
        self.types: dict[Any, TensorType] = {}
        self.tuples: dict[Any, Row] = {}  # tuple of results → the row of its operator

    def rows(self) -> Iterator[Loaded]:
        """Yield the rows that number and type every class whose type follows from its operands, in topological order."""
        pending_rows = list(self.pending())
        while pending_rows:
            untyped = []
            for row in pending_rows:
                if self.is_known(row[2]):
                    continue
                new_rows = self.rows_of(row)
                if not new_rows:
                    untyped.append(row)
                yield from new_rows
            if len(untyped) == len(pending_rows):
                return
            pending_rows = untyped

    def pending(self) -> Iterator[Row]:
        """Yield the rows of classes without type or number."""
        for name in self.constructor_of:
            op = operator_named(name)
            if op is None:
                continue
            for r in self.reader.rows(name):
                row = (name, r.inputs, r.output)
                if op.outputs > 1:
                    self.tuples[r.output] = row
                if not self.is_known(r.output):
                    yield row
        yield from (("Result", r.inputs, r.output) for r in self.reader.rows("Result") if not self.is_known(r.output))

    def is_known(self, value: Any) -> bool:
        """Tell whether a class has a type, or, as the tuple of several results, a number."""
        return value in self.number_of if value in self.tuples else value in self.shapes or value in self.types

    def rows_of(self, row: Row) -> list[Loaded]:
        """Return the rows of one class, none while its operands are untyped."""
        name, inputs, value = row
        children = inputs[:1] if name == "Result" else inputs[: self.constructor_of[name].operands]
        if not all(self.is_known(c) and c in self.number_of for c in children):
            return []
        tensor_type = self.type_of(row)
        if tensor_type is None and value not in self.tuples:
            return []
        rows = [] if value in self.number_of else [self.number_row(row)]
        if tensor_type is not None:
            self.types[value] = tensor_type
            rows.extend(fact_rows(self.number_of[value], tensor_type, fixed=False))
        return rows

    def number(self, value: Any) -> int:
        """Return the number of a class, a fresh one if it has none."""
        if value not in self.number_of:
            self.number_of[value] = self.next_number
            self.next_number += 1
        return int(self.number_of[value])

    def type(self, value: Any) -> TensorType:
        """Return the type of a typed class."""
        if value not in self.types:
            kind = self.reader.egglog.value_to_string(self.kinds[value])
            self.types[value] = TensorType(self.reader.ints(self.shapes[value]), kind)
        return self.types[value]

    def number_row(self, row: Row) -> Loaded:
        """Return the load row that gives the class of a term its number."""
        name, inputs, value = row
        if name == "Result":
            return ["Result", self.number(value), self.number_of[inputs[0]], self.reader.egglog.value_to_i64(inputs[1])]
        op, constructor = operator_named(name), self.constructor_of[name]
        assert op is not None
        operands = [self.number_of[c] for c in inputs[: constructor.operands]]
        return term_row(self.number(value), op, operands, list(self.attributes(row).values()))

    def attributes(self, row: Row) -> Mapping[str, Any]:
        """Return the attributes of a row by name."""
        op, constructor = operator_named(row[0]), self.constructor_of[row[0]]
        assert op is not None
        values = zip(op.attributes, row[1][constructor.operands :], constructor.attributes, strict=True)
        return {a.name: self.reader.attribute(v, kind) for a, v, kind in values}

    def type_of(self, row: Row) -> TensorType | None:
        """Return the type of the class of a row; None for a tuple of results, or where its operator has no row."""
        name, inputs, value = row
        if value in self.tuples:
            return None
        application, output = row, 0
        if name == "Result":
            if inputs[0] not in self.tuples:
                return None
            application, output = self.tuples[inputs[0]], self.reader.egglog.value_to_i64(inputs[1])
        op = operator_named(application[0])
        assert op is not None
        operands = application[1][: self.constructor_of[application[0]].operands]
        if not all(self.is_known(c) for c in operands):
            return None
        return result_types(op, [self.type(c) for c in operands], self.attributes(application))[output]
