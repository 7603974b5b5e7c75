"""HLSCNN: a 2-D convolution accelerator (Harvard), its two scratchpads and the SoC memory it streams activations from."""

from __future__ import annotations

from dataclasses import asdict

from rewrite_compiler.ila import Ila, mmio

from .config import declare_config
from .convolution import declare_convolution
from .memories import declare_memories
from .revisions import DEFAULT, REVISIONS, Revision, choose

__all__ = ["DEFAULT", "REVISIONS", "Revision", "build"]


def build(revision: str = DEFAULT, **parameters: object) -> Ila:
    """Return the model of a design revision; `parameters` replace single parameters of it (fields of Revision)."""
    p = choose(revision, parameters)
    m = Ila("hlscnn", __doc__ or "", {"revision": revision, **asdict(p)})
    mmio(m)
    m.input("virtual", 1)
    declare_config(m, p)
    declare_memories(m, p)
    declare_convolution(m, p)
    return m
