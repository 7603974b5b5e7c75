"""Chains: calls of machine code as one, all others between them, in their order."""

from __future__ import annotations

import itertools
import threading
from functools import partial

import numpy as np
import pytest

from rewrite_compiler.lang.convert import copier
from rewrite_compiler.lang.kernels import loaded_kernels
from rewrite_compiler.lang.native_chain import LEAST, MOST, chained
from rewrite_compiler.lang.native_jit import function_of
from rewrite_compiler.lang.tape import Copied

SIZE = (64, 128)


def copies(*arrays: np.ndarray) -> list[Copied]:
    """Return copies of each array into the next one, transposed: machine code makes them."""
    loaded_kernels()
    made = [Copied(b, a.T) for a, b in itertools.pairwise(arrays)]
    assert all(isinstance(c.run, partial) and copier(c.target, c.source) is not None for c in made)
    return made


def arrays(count: int) -> list[np.ndarray]:
    return [np.zeros(SIZE if n % 2 == 0 else SIZE[::-1], np.int32) for n in range(count)]


def test_calls_of_machine_code_that_follow_each_other_are_one() -> None:
    data = arrays(5)
    chain = chained(copies(*data))
    data[0][...] = np.random.default_rng(0).integers(-99, 99, SIZE)
    assert len(chain) == 1
    chain[0]()
    np.testing.assert_array_equal(data[-1], data[0])
    np.testing.assert_array_equal(data[1], data[0].T)


def test_other_calls_stay_where_they_are() -> None:
    data = arrays(7)
    made = copies(*data)
    chain = chained([*made[:3], lambda: np.negative(data[3], out=data[3]), *made[3:]])
    assert len(chain) == 3
    data[0][...] = np.random.default_rng(1).integers(-99, 99, SIZE)
    for call in chain:
        call()
    np.testing.assert_array_equal(data[-1], -data[0])


def test_copies_of_whole_blocks_are_in_a_chain_too() -> None:
    """Parts that lie in one piece, their own place and neighbours among them."""
    data = np.random.default_rng(2).integers(-99, 99, (6, *SIZE), np.int32)
    expected = data.copy()
    places = [(1, 0), (2, 1), (2, 2), (3, 4), (5, 3)]
    made = [Copied(data[a], data[b]) for a, b in places]
    made.append(Copied(data.reshape(-1)[7:1000], data.reshape(-1)[500:1493]))
    made.append(Copied(data[5, 1], np.ascontiguousarray(data[0, 0])))
    (chain,) = chained(made)
    chain()
    for a, b in places:
        expected[a] = expected[b]
    expected.reshape(-1)[7:1000] = expected.reshape(-1)[500:1493].copy()
    expected[5, 1] = made[-1].source
    np.testing.assert_array_equal(data, expected)


def test_a_call_alone_is_no_chain() -> None:
    (call,) = copies(*arrays(2))
    assert chained([call]) == [call]
    assert chained([]) == []
    assert LEAST == 2


@pytest.mark.parametrize("count", range(1, MOST + 2))
def test_every_number_of_operands_arrives(count: int) -> None:
    names = ", ".join(f"i64 %a{n}" for n in range(count))
    stores = "\n".join(f"%p{n} = getelementptr i64, i64* %o, i64 {n}\nstore i64 %a{n}, i64* %p{n}" for n in range(count))
    text = f"define void @run({names}) {{\n%o = inttoptr i64 %a0 to i64*\n{stores}\nret void\n}}"
    _, run = function_of(text, 0, count)
    out = np.zeros((2, count), np.int64)

    class Call:
        def __init__(self, row: int) -> None:
            self.run = partial(run, out[row].ctypes.data, *(row * 100 + n for n in range(1, count)))

        def __call__(self) -> None:
            self.run()

    chain = chained([Call(0), Call(1)])
    assert len(chain) == (1 if count <= MOST else 2)
    for call in chain:
        call()
    np.testing.assert_array_equal(out[:, 1:], [[row * 100 + n for n in range(1, count)] for row in range(2)])
    assert out[0, 0] == out[0].ctypes.data


def test_threads_play_chains_of_their_own_at_once() -> None:
    sets = [arrays(9) for _ in range(4)]
    chains = [chained(copies(*data)) for data in sets]
    for n, data in enumerate(sets):
        data[0][...] = np.random.default_rng(n).integers(-99, 99, SIZE)
    threads = [threading.Thread(target=lambda c=chain: [c[0]() for _ in range(50)]) for chain in chains]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for data in sets:
        np.testing.assert_array_equal(data[-1], data[0])
