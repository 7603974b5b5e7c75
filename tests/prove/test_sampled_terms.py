"""Terms of several samples are those of each; commands may depend on codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rewrite_compiler.lang import array, reduce_sum
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.prove.mappings.mappings import code_difference
from rewrite_compiler.readings.arrays.labelled_array import Data
from rewrite_compiler.readings.kernels.evaluate import evaluate, evaluate_together
from rewrite_compiler.readings.smt.polynomial_terms import Terms
from rewrite_compiler.target import find_target, split_bytes


def test_a_driver_may_send_commands_that_depend_on_codes() -> None:
    target = find_target("flexasr")
    m = target.mappings["linear_tanh"]

    def drive(device: Any, x: Data, w: Data, b: Data, f: Any) -> Any:
        for _ in range(int(x.reshape(-1)[0]) % 7):
            device.issue("pe0_config_act_mngr", num_inst=1)
        return m.drive(device, x=x, w=w, b=b, f=f)  # type: ignore[misc]

    assert code_difference(replace(m, drive=drive), target.ila(), {"t": 3, "k": 33, "n": 70}) is None


def test_bytes_of_a_term_that_is_a_byte_are_itself_and_0() -> None:
    terms = Terms()
    x, wide = terms.variable("x", (0, 255)), terms.variable("wide", (0, 65535))
    low, high, *rest = split_bytes(np.array([x, wide], object), 2)
    assert low is x
    assert (high, type(high)) == (0, int)
    assert rest == [terms.modulo(wide, 256), terms.quotient(wide, 256)]


def test_terms_of_all_samples_are_those_of_each() -> None:
    x, w = (Leaf((4, 3), (-8, 7), False, n) for n in "xw")
    product = array(lambda i, j: reduce_sum(lambda k: x[i, k] * w[j, k], 3), (4, 4))
    random = np.random.default_rng(0)
    given = {leaf: random.integers(-8, 8, (5, 4, 3)) for leaf in (x, w)}
    found = evaluate_together(product, given)
    assert all(np.array_equal(found[n], evaluate(product, {leaf: a[n] for leaf, a in given.items()})) for n in range(5))
    constant = array(lambda i: i * 2, (3,))
    assert evaluate_together(constant, given).tolist() == [[0, 2, 4]] * 5
