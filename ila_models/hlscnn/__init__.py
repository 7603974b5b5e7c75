"""HLSCNN: a 2-D convolution accelerator (Harvard), its two scratchpads and the SoC memory it streams activations from."""

from dataclasses import replace

from rewrite_compiler.ila import Ila, mmio

from .config import declare_config
from .convolution import declare_convolution
from .memories import declare_memories
from .revisions import DEFAULT, REVISIONS, Revision, choose

__all__ = ["DEFAULT", "REVISIONS", "Revision", "build"]


def build(revision: str = DEFAULT, **parameters: object) -> Ila:
    """Return the model of a design revision; `parameters` replace single parameters of it (fields of Revision)."""
    p = choose(revision, parameters)
    m = Ila("hlscnn", __doc__ or "", {"revision": revision, **vars(p)})
    bus = mmio(m)
    virtual = m.input("virtual", 1)[()]  # where it tells writes of the SoC memory apart, they are no commands of the device
    is_command = bus.address <= 0x3200_0078
    device = replace(bus, address_bits=24, enabled=is_command if p.soc_window is not None else is_command & ~virtual)
    soc = bus if p.soc_window is not None else replace(bus, enabled=virtual, fixed={"virtual": 1})
    declare_config(m, device, p)
    declare_memories(m, device, soc, p)
    declare_convolution(m, device, p)
    return m
