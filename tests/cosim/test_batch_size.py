"""How many samples are computed at once follows from the largest tensor."""

import numpy as np
import pytest

from rewrite_compiler.cosim.batch_size import MOST_BYTES, MOST_SAMPLES, batch_size
from rewrite_compiler.ir.program import Node, Program, TensorType


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


def test_what_follows_from_parameters_alone_is_not_of_a_batch() -> None:
    p = program(1, constant=MOST_BYTES // 4)
    types = (*p.types, p.types[1], p.types[1])
    alone = Program("p", types, ("x", "w", "t", "y"), (0,), (2,), (Node("transpose", (1,), (2,)),), p.constants)
    assert batch_size(alone) == MOST_SAMPLES
    later = Node("add", (2, 0), (3,))
    assert batch_size(Program("p", types, ("x", "w", "t", "y"), (0,), (3,), (*alone.nodes, later), p.constants)) == 1
