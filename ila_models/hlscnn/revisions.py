"""HLSCNN design revisions: one model, a table of what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rewrite_compiler.errors import UsageError

SPAD0_BASE = 0x4000
ADDRESS_TOP = 1 << 24  # the device masks the upper byte of the address away
KIB = 1 << 10


@dataclass(frozen=True)
class Revision:
    """The parameters of one design; sizes in bytes, `…_int_bits` with the sign bit.

    `spad1_base` None: directly behind SPAD0. `soc_window` is the bus address of SoC byte 0 when writes to the SoC memory
    are told by their address, None when by the input `virtual`. `act_source` "spad1": activations lie in SPAD1, and the
    three base registers are honoured.
    """

    weight_bits: int = 8
    act_int_bits: int = 9
    psum_int_bits: int = 16
    grouped_output: bool = True
    spad_bytes: int = 0x7F_C000
    spad1_base: int | None = None
    act_source: str = "soc"
    soc_bytes: int = 1 << 28
    soc_window: int | None = None
    channel_bits: int = 11
    filter_bits: int = 11

    @property
    def spad1(self) -> int:
        """Bus address of SPAD1."""
        return SPAD0_BASE + self.spad_bytes if self.spad1_base is None else self.spad1_base

    @property
    def act_fraction(self) -> int:
        """Fraction bits of activations, which have 16 bits."""
        return 16 - self.act_int_bits

    @property
    def psum_fraction(self) -> int:
        """Fraction bits of partial sums, which have 32 bits."""
        return 32 - self.psum_int_bits

    @property
    def weight_fraction(self) -> int:
        """Fraction bits of stored weights: Q2.6 or Q2.14."""
        return self.weight_bits - 2


_EXT8 = Revision()
_EXT16 = replace(_EXT8, weight_bits=16)
REVISIONS: dict[str, Revision] = {
    "orig": Revision(grouped_output=False, spad_bytes=128 * KIB, soc_bytes=192 * KIB, soc_window=0x5_0000, channel_bits=12, filter_bits=8),
    "ext8": _EXT8,
    "ext16": _EXT16,
    "uni16": replace(_EXT16, spad_bytes=128 * KIB, act_source="spad1"),
    "ext16_a3p16": replace(_EXT16, act_int_bits=3),
    "ext16_a3p8": replace(_EXT16, act_int_bits=3, psum_int_bits=8),
}
DEFAULT = "ext8"
CHOICES: dict[str, tuple[Any, ...]] = {"weight_bits": (8, 16), "grouped_output": (False, True), "act_source": ("soc", "spad1")}
RANGES: dict[str, tuple[int, int]] = {
    "act_int_bits": (1, 15),
    "psum_int_bits": (2, 30),
    "spad_bytes": (16, ADDRESS_TOP),
    "spad1_base": (SPAD0_BASE, ADDRESS_TOP),
    "soc_bytes": (16, 1 << 32),
    "soc_window": (0, 1 << 32),
    "channel_bits": (1, 12),
    "filter_bits": (1, 12),
}
OPTIONAL = ("spad1_base", "soc_window")


def choose(revision: str, overrides: Mapping[str, Any]) -> Revision:
    """Return the named revision with single parameters replaced; UsageError names what is unknown or impossible."""
    if revision not in REVISIONS:
        raise UsageError("F203", f'parameter revision of hlscnn must be one of {", ".join(REVISIONS)}, not "{revision}"')
    known = [f.name for f in fields(Revision)]
    for name, value in overrides.items():
        if name not in known:
            raise UsageError("F203", f'hlscnn has no parameter "{name}"', help=f"known: revision, {', '.join(known)}")
        _check(name, value)
    made = replace(REVISIONS[revision], **overrides)
    _consistent(made)
    return made


def _check(name: str, value: object) -> None:
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise UsageError("F203", f"parameter {name} of hlscnn must be one of {', '.join(map(str, CHOICES[name]))}, not {value}")
    elif not (name in OPTIONAL and value is None):
        low, high = RANGES[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise UsageError("F203", f"parameter {name} of hlscnn must be an integer in {low}…{high}, not {value}")


def _consistent(r: Revision) -> None:
    if r.psum_fraction <= r.act_fraction:
        raise UsageError(
            "F203",
            f"partial sums must have more fraction bits than activations, not {r.psum_fraction} against {r.act_fraction}",
            help="lower psum_int_bits or raise act_int_bits",
        )
    for name, value in (("spad_bytes", r.spad_bytes), ("soc_bytes", r.soc_bytes)):
        if value % 16:
            raise UsageError("F203", f"parameter {name} of hlscnn must be a multiple of 16, not {value}")
    if not SPAD0_BASE + r.spad_bytes <= r.spad1 <= ADDRESS_TOP - r.spad_bytes:
        room = f"both scratchpads of {r.spad_bytes:#x} bytes must lie between {SPAD0_BASE:#x} and {ADDRESS_TOP:#x}"
        raise UsageError("F203", f"{room}, not SPAD1 at {r.spad1:#x}")
