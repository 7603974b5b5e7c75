"""HLSCNN design revisions: one model, a table of what differs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewrite_compiler.ila import check_design, choice, demand, designed, one_of, within

SPAD0_BASE = 0x4000
ADDRESS_TOP = 1 << 24  # the device masks the upper byte of the address away


@dataclass(frozen=True)
class Revision:
    """The parameters of one design; sizes in bytes, `…_int_bits` with the sign bit.

    `spad1_base` None: directly behind SPAD0. `soc_window` is the bus address of SoC byte 0 when writes to the SoC memory
    are told by their address, None when by the input `virtual`. `act_source` "spad1": activations lie in SPAD1, and the
    three base registers are honoured.
    """

    weight_bits: int = choice(8, 16)
    act_int_bits: int = within(1, 15, 9)
    psum_int_bits: int = within(2, 30, 16)
    grouped_output: bool = choice(True, False)
    spad_bytes: int = within(16, ADDRESS_TOP, 0x7F_C000, step=16)
    spad1_base: int | None = within(SPAD0_BASE, ADDRESS_TOP, None)
    act_source: str = choice("soc", "spad1")
    soc_bytes: int = within(16, 1 << 32, 1 << 28, step=16)
    soc_window: int | None = within(0, 1 << 32, None)
    channel_bits: int = within(1, 12, 11)
    filter_bits: int = within(1, 12, 11)

    def __post_init__(self) -> None:
        check_design("hlscnn", self)
        _, act, psum = self.fractions
        sentence = f"partial sums must have more fraction bits than activations, not {psum} against {act}"
        demand(act < psum, sentence, help="lower psum_int_bits or raise act_int_bits")
        room = f"both scratchpads of {self.spad_bytes:#x} bytes must lie between {SPAD0_BASE:#x} and {ADDRESS_TOP:#x}"
        demand(SPAD0_BASE + self.spad_bytes <= self.spad1 <= ADDRESS_TOP - self.spad_bytes, f"{room}, not SPAD1 at {self.spad1:#x}")

    @property
    def spad1(self) -> int:
        """Bus address of SPAD1."""
        return SPAD0_BASE + self.spad_bytes if self.spad1_base is None else self.spad1_base

    @property
    def fractions(self) -> tuple[int, int, int]:
        """Fraction bits of stored weights (Q2.6 or Q2.14), of activations (16 bits) and of partial sums (32 bits)."""
        return self.weight_bits - 2, 16 - self.act_int_bits, 32 - self.psum_int_bits


REVISIONS = {
    "orig": Revision(grouped_output=False, spad_bytes=0x2_0000, soc_bytes=0x3_0000, soc_window=0x5_0000, channel_bits=12, filter_bits=8),
    "ext8": Revision(),
    "ext16": Revision(weight_bits=16),
    "uni16": Revision(weight_bits=16, spad_bytes=0x2_0000, act_source="spad1"),
    "ext16_a3p16": Revision(weight_bits=16, act_int_bits=3),
    "ext16_a3p8": Revision(weight_bits=16, act_int_bits=3, psum_int_bits=8),
}
DEFAULT = "ext8"


def choose(revision: str, overrides: Mapping[str, Any]) -> Revision:
    """Return the named revision with single parameters replaced; UsageError names what is unknown or impossible."""
    return designed("hlscnn", REVISIONS[one_of("hlscnn", "revision", revision, REVISIONS)], overrides, extra_names=("revision",))
