"""FlexASR: a speech and language accelerator (Harvard), its global buffer, four processing elements and five engines."""

from dataclasses import replace

from rewrite_compiler.ila import Ila, Revisions, mmio, one_of

from .attention import declare_attention
from .buffers import declare_buffers
from .config import declare_config
from .control import declare_control
from .differences import BEHAVIOURS, DIFFERENCES
from .engines import declare_engines

__all__ = ["BEHAVIOURS", "SIGMOIDS", "build"]

SIGMOIDS = ("3.2", "3.4")


def build(behaviour: str = "hardware", sigmoid: str = "3.2") -> Ila:
    """Return the model; `behaviour` chooses between the SystemC hardware and the published ILA where they differ.

    `sigmoid` is the release of the maths library whose piecewise-linear sigmoid the design was built with.
    """
    one_of("flexasr", "behaviour", behaviour, BEHAVIOURS)
    one_of("flexasr", "sigmoid", sigmoid, SIGMOIDS)
    m = Ila("flexasr", __doc__ or "", {"behaviour": behaviour, "sigmoid": sigmoid})
    bus = mmio(m)
    bus = replace(bus, unused_bits=4) if behaviour == "hardware" else bus  # of a word of sixteen bytes
    m.revisions = Revisions("behaviour", BEHAVIOURS, DIFFERENCES)
    m.interrupt = m.register("interrupt", 1, doc="Interrupt line: an engine has finished.")
    m.interrupt_stays = behaviour == "published_ila"
    declare_config(m, bus)
    declare_buffers(m, bus)
    declare_control(m, bus)
    declare_engines(m, bus)
    declare_attention(m, bus)
    return m
