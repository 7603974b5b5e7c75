"""Tree ensembles of ai.onnx.ml: every way from a node leads to a leaf; the host would walk around a cycle for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from ...errors import InputError
from ..site.site import Site

CHILDREN = ("nodes_truenodeids", "nodes_falsenodeids")
Edge = tuple[Hashable, str, Hashable]  # from a node, by an attribute, to a node


def check_trees(site: Site) -> None:
    """Check that no tree leads back to a node that it came from.

    Raises:
        InputError: a tree does.
    """
    leading = between_cycles(list(_edges(site)))
    if not leading:
        return
    source, attribute, child = _closing({edge[0]: edge for edge in leading}, leading[0][0])
    tree = f" of tree {source[0]}" if isinstance(source, tuple) else ""
    number, back = (x[1] if isinstance(x, tuple) else x for x in (source, child))
    sentence = f'attribute "{attribute}" of {site.op} must lead from node {number}{tree} on to a leaf, not back to node {back}'
    raise InputError("F130", sentence, help="a sample that comes there never reaches a leaf: export the trees again")


def between_cycles(edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges between nodes that do not all lead to leaves: those of cycles, and of what leads to them."""
    open_ways = Counter(source for source, _, _ in edges)
    parents: dict[Hashable, list[Hashable]] = {}
    for source, _, child in edges:
        parents.setdefault(child, []).append(source)
    pending = [node for node in parents if node not in open_ways]  # nodes all of whose ways lead to leaves
    while pending:
        for parent in parents.get(pending.pop(), ()):
            open_ways[parent] -= 1
            if not open_ways[parent]:
                pending.append(parent)
    return [edge for edge in edges if open_ways[edge[0]] and open_ways[edge[2]]]


def _edges(site: Site) -> Iterator[Edge]:
    """Yield the ways from inner nodes to nodes; nodes are named by tree and number, or by their place where all trees share one list."""
    names, modes = site.get("nodes_nodeids", ()), site.get("nodes_modes", ())
    for attribute in CHILDREN:
        children = site.get(attribute, ())
        if site.op == "TreeEnsemble":
            leaves = site.get(attribute.replace("nodeids", "leafs"), ())
            yield from ((n, attribute, child) for n, (child, is_leaf) in enumerate(zip(children, leaves, strict=False)) if not is_leaf)
            continue
        for tree, name, mode, child in zip(site.get("nodes_treeids", ()), names, modes, children, strict=False):
            if mode not in ("LEAF", b"LEAF"):
                yield (tree, name), attribute, (tree, child)


def _closing(ways: Mapping[Hashable, Edge], start: Hashable) -> Edge:
    """Return the edge by which a walk along one way from each node first comes back to a node on it."""
    visited = {start}
    edge = ways[start]
    while edge[2] not in visited:
        visited.add(edge[2])
        edge = ways[edge[2]]
    return edge
