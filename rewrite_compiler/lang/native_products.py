"""Products of matrices by the kernels of blocked folds, in the form that this processor has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import native_fold
from .native_fold import FORMS, ROWS, Kernel
from .straight import Code, Op

if TYPE_CHECKING:
    from .named import Data
    from .products import Factor
    from .tape import Tape


@dataclass
class NativeProducts:
    """Products of matrices by kernels of a form."""

    form: str
    lanes: int
    rows: int = ROWS

    def run(self, a: Factor, b: Data, out: Data, tape: Tape | None) -> None:
        """Set out[row, column] to the sum over steps of A's elements, side by side, times the packed words of B."""
        kernel = Kernel(_step(a.width), 1, a.width // 2, out.dtype.str, self.form, False)
        tiles, steps, _, lanes = b.shape
        native_fold.run_fold(kernel, [(a.data, a.rows, a.steps)], b, None, out, [len(out), tiles, steps, tiles * lanes], tape)


def native_products() -> NativeProducts:
    """Return what multiplies matrices on this machine."""
    form = native_fold.best_form()
    return NativeProducts(form, FORMS[form][0])


def _step(width: int) -> Code:
    """Return the code that adds `width` products to the accumulator."""
    return Op("acc"), Op("dot", (), (0, 0, 0, width // 2)), Op("add", (0, 1))
