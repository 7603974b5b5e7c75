"""E-class analysis of types: types of classes that rules have made, by the operators' own shape rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.types import TensorType, result_types
from ...ops import Op
from ..graph.reader import Reader
from ..graph.schema import Constructor
from ..graph.table_load import Row as Loaded
from ..graph.term_rows import fact_rows, operator_named, term_row

Row = tuple[str, list[Any], Any]  # constructor, arguments, class


@dataclass(frozen=True)
class _Term:
    """What a core operator's rows mean: its constructor, the operator, and the name and kind of each attribute."""

    constructor: Constructor
    op: Op
    attributes: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, op: Op, constructor: Constructor) -> _Term:
        """Return the meaning of the rows of an operator."""
        return cls(constructor, op, tuple((a.name, kind) for a, kind in zip(op.attributes, constructor.attributes, strict=True)))


class TypeAnalysis:
    """Computes types and numbers of classes that lack them, as rows to load into the e-graph.

    What is known of a class is kept between rounds: its type and its number never change. A union may give a class another name; one that
    is not known here is typed again from its operands, or read from the e-graph where that does not do.
    """

    def __init__(self, constructors: Mapping[str, Constructor]) -> None:
        self.terms = {name: _Term.of(op, c) for name, c in constructors.items() if (op := operator_named(name)) is not None}
        self.next_number = 0
        self.types: dict[Any, TensorType] = {}
        self.number_of: dict[Any, int] = {}
        self.tuples: dict[Any, Row] = {}  # tuple of results → the row of its operator
        self.result_types: dict[tuple[Any, ...], tuple[TensorType, ...]] = {}  # by operator, types of operands, and attributes

    def read(self, reader: Reader) -> None:
        """Read all types and numbers that the e-graph has."""
        kinds = {r.inputs[0]: reader.egglog.value_to_string(r.output) for r in reader.rows("kind")}
        self.types.update((x, TensorType(reader.ints(r.output), kinds[x])) for r in reader.rows("dims") if (x := r.inputs[0]) in kinds)
        for r in reader.rows("at"):
            number = self.number_of[r.output] = reader.integer(r.inputs[0])
            self.next_number = max(self.next_number, number + 1)  # a class may have several

    def rows(self, reader: Reader) -> Iterator[Loaded]:
        """Yield the rows that number and type every class whose type follows from its operands, in topological order."""
        pending_rows, was_read = self.pending(reader), False
        while pending_rows:
            untyped = []
            for row in pending_rows:
                if self.is_known(row[2]):
                    continue
                new_rows = self.rows_of(reader, row)
                if not new_rows:
                    untyped.append(row)
                yield from new_rows
            if len(untyped) == len(pending_rows):
                if was_read:
                    return
                self.read(reader)
                was_read = True
            pending_rows = untyped

    def pending(self, reader: Reader) -> list[Row]:
        """Return the rows of classes without type or number."""
        rows: list[Row] = []
        for name, term in self.terms.items():
            if term.op.outputs > 1:
                self.tuples.update((r.output, (name, r.inputs, r.output)) for r in reader.rows(name))
            with_facts: Mapping[Any, object] = self.types if term.op.outputs == 1 else self.number_of
            rows.extend((name, r.inputs, value) for r in reader.rows(name) if (value := r.output) not in with_facts)
        rows.extend(("Result", r.inputs, value) for r in reader.rows("Result") if (value := r.output) not in self.types)
        return rows

    def is_known(self, value: Any) -> bool:
        """Tell whether a class has a type, or, as the tuple of several results, a number."""
        return value in self.number_of if value in self.tuples else value in self.types

    def rows_of(self, reader: Reader, row: Row) -> list[Loaded]:
        """Return the rows of one class, none while its operands are untyped."""
        name, inputs, value = row
        children = inputs[:1] if name == "Result" else inputs[: self.terms[name].constructor.operands]
        if not all(self.is_known(c) and c in self.number_of for c in children):
            return []
        tensor_type = self.type_of(reader, row)
        if tensor_type is None and value not in self.tuples:
            return []
        rows = [] if value in self.number_of else [self.number_row(reader, row)]
        if tensor_type is not None:
            self.types[value] = tensor_type
            rows.extend(fact_rows(self.number_of[value], tensor_type, fixed=False))
        return rows

    def number(self, value: Any) -> int:
        """Return the number of a class, a fresh one if it has none."""
        if value not in self.number_of:
            self.number_of[value] = self.next_number
            self.next_number += 1
        return self.number_of[value]

    def number_row(self, reader: Reader, row: Row) -> Loaded:
        """Return the load row that gives the class of a term its number."""
        name, inputs, value = row
        if name == "Result":
            return ["Result", self.number(value), self.number_of[inputs[0]], reader.integer(inputs[1])]
        term = self.terms[name]
        operands = [self.number_of[c] for c in inputs[: term.constructor.operands]]
        return term_row(self.number(value), term.op, operands, self.attributes(reader, row))

    def attributes(self, reader: Reader, row: Row) -> list[Any]:
        """Return the attributes of a row."""
        name, inputs, _ = row
        term = self.terms[name]
        return [reader.attribute(v, kind) for v, (_, kind) in zip(inputs[term.constructor.operands :], term.attributes, strict=True)]

    def type_of(self, reader: Reader, row: Row) -> TensorType | None:
        """Return the type of the class of a row; None for a tuple of results, or where its operator has no row."""
        name, inputs, value = row
        if value in self.tuples:
            return None
        application, output = row, 0
        if name == "Result":
            if inputs[0] not in self.tuples:
                return None
            application, output = self.tuples[inputs[0]], reader.integer(inputs[1])
        term = self.terms[application[0]]
        operands = application[1][: term.constructor.operands]
        if not all(c in self.types for c in operands):
            return None
        return self.types_of(term, [self.types[c] for c in operands], self.attributes(reader, application))[output]

    def types_of(self, term: _Term, operands: list[TensorType], attributes: list[Any]) -> tuple[TensorType, ...]:
        """Return the types of an operator's results, cached."""
        key = (term.op.name, *operands, *attributes)
        if key not in self.result_types:
            values = {name: value for (name, _), value in zip(term.attributes, attributes, strict=True)}
            self.result_types[key] = result_types(term.op, operands, values)
        return self.result_types[key]
