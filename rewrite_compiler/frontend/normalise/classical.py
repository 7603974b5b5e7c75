"""Lowerings of the output forms of classical models: a list of maps is the matrix whose columns it names."""

from __future__ import annotations

import numpy as np

from ...ir.program import Value
from ..site.context import Unsupported
from ..site.site import Lowering, Site


def _zip_map(site: Site) -> list[Value]:
    """Lower ZipMap to its matrix, with columns in the order of their sorted labels, as the host gives the maps."""
    labels = site.get("classlabels_strings", ()) or site.get("classlabels_int64s", ())
    if site.rank(0) != 2 or len(set(labels)) != len(labels):
        raise Unsupported("its operand is not a matrix with one label a column")
    order = sorted(range(len(labels)), key=lambda k: labels[k])
    columns = ", ".join(str(labels[k]) for k in order[:4]) + (", …" if len(labels) > 4 else "")
    site.context.note(f'output "{site.name}" is a matrix with the columns {columns}: the maps of ZipMap name its columns only')
    x = site.value(0)
    return [
        x if order == list(range(len(labels))) else site.apply("gather", x, site.constant(np.asarray(order, np.int64), "order"), axis=1)
    ]


TABLE: dict[str, Lowering] = {"ZipMap": _zip_map}
