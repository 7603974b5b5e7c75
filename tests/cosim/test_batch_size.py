"""How many samples are computed at once follows from the largest tensor."""

import numpy as np
import pytest

from rewrite_compiler.cosim.batch_size import MOST_BYTES, MOST_SAMPLES, batch_size
from rewrite_compiler.ir.program import Program, TensorType


def program(elements: int, constant: int = 1) -> Program:
    types = tuple(TensorType((n,), "float32") for n in (elements, constant))
    return Program("p", types, ("x", "w"), (0,), (0,), (), {1: np.zeros((), np.float32)})


@pytest.mark.parametrize(
    ("elements", "samples"),
    [
        (1, MOST_SAMPLES),
        (MOST_BYTES // 4 // MOST_SAMPLES, MOST_SAMPLES),
        (MOST_BYTES // 4 // MOST_SAMPLES + 1, MOST_SAMPLES // 2),
        (112 * 112 * 96, 8),  # MobileNet-V2 on images of 224 by 224
        (MOST_BYTES, 1),
    ],
)
def test_the_largest_tensor_decides(elements: int, samples: int) -> None:
    assert batch_size(program(elements)) == samples


def test_parameters_are_not_of_a_batch() -> None:
    assert batch_size(program(1, constant=MOST_BYTES)) == MOST_SAMPLES
