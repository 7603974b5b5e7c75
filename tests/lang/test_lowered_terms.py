"""Kernels do what the meaning says: random terms over samples, with what is shared between them and what is not."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from terms import contents_of
from test_readings import EXAMPLES, flat, problems, stored, walked

from rewrite_compiler.kernels import Lowered, NotLowered

# every term is compiled, so that making a failing one smaller would take minutes
RANDOM = settings(max_examples=max(1, EXAMPLES // 3), deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@RANDOM
@given(st.data())
def test_random_terms(data: st.DataObject) -> None:
    term, leaves, contents = data.draw(problems())
    samples = data.draw(st.integers(1, 3))
    moving = [leaf for leaf in leaves if data.draw(st.booleans())]
    every = {leaf: [contents_of(data.draw, leaf) for _ in range(samples)] for leaf in moving}
    expected = [walked(term, {**contents, **{leaf: x[n] for leaf, x in every.items()}}) for n in range(samples)]
    if None in expected:
        return
    shared = {leaf: stored(leaf, contents[leaf]) for leaf in leaves if leaf not in moving}
    given_ = {leaf: stored(leaf, [c for one in x for c in one], (samples,)) for leaf, x in every.items()}
    try:
        (found,) = Lowered([term], moving, samples)({**shared, **given_})
    except NotLowered:
        return
    assert [flat(x) for x in np.asarray(found)] == expected
