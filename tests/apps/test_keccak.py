"""Keccak: its model gives the digests of the standard library bit for bit, and VTA computes every exclusive or of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from rewrite_compiler import apps
from rewrite_compiler.apps.keccak import permutation as p
from rewrite_compiler.apps.keccak import words
from rewrite_compiler.apps.keccak.export import parity, to_onnx
from rewrite_compiler.apps.keccak.make import MESSAGES, main, messages
from rewrite_compiler.compile import compile_model, plan_files
from rewrite_compiler.cosim import cosimulate

APP = apps.find_application("keccak")
assert isinstance(APP, apps.App)
MASK = (1 << p.BITS) - 1


def rounds_of(state: bytes, count: int) -> bytes:
    """Run the permutation's first rounds on Python integers, step by step as FIPS 202 writes them."""
    lanes = {(x, y): int.from_bytes(state[8 * (x + 5 * y) :][:8], "little") for x in range(5) for y in range(5)}

    def rotated(word: int, by: int) -> int:
        return ((word << by) | (word >> (p.BITS - by))) & MASK

    for number in range(count):
        column = [lanes[x, 0] ^ lanes[x, 1] ^ lanes[x, 2] ^ lanes[x, 3] ^ lanes[x, 4] for x in range(5)]
        lanes = {(x, y): lane ^ column[(x - 1) % 5] ^ rotated(column[(x + 1) % 5], 1) for (x, y), lane in lanes.items()}
        offsets = p.rotations()
        lanes = {(y, (2 * x + 3 * y) % 5): rotated(lane, int(offsets[x + 5 * y])) for (x, y), lane in lanes.items()}
        lanes = {(x, y): lane ^ (~lanes[(x + 1) % 5, y] & lanes[(x + 2) % 5, y] & MASK) for (x, y), lane in lanes.items()}
        lanes[0, 0] ^= p.round_constant(number)
    return b"".join(lanes[x, y].to_bytes(8, "little") for y in range(5) for x in range(5))


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_the_reference_of_rounds_is_the_standard_library() -> None:
    for message in messages():
        assert rounds_of(p.block_of(message), p.ROUNDS)[: p.DIGEST] == hashlib.sha3_256(message).digest()


def test_the_factors_of_the_terms_give_the_parity_of_a_sum() -> None:
    for terms in range(1, 12):
        for s in range(terms + 1):
            assert sum(factor * max(s - j, 0) for j, factor in enumerate(parity(terms))) == s % 2


def test_the_shipped_model_gives_every_digest() -> None:
    assert isinstance(APP, apps.App)
    run = onnxruntime.InferenceSession(APP.model.read_bytes(), providers=["CPUExecutionProvider"])
    with np.load(APP.data) as data:
        assert len(data["state"]) == MESSAGES
        for message, state, bits in zip(messages(), data["state"], data["labels"], strict=True):
            assert np.packbits(bits, bitorder="little").tobytes() == hashlib.sha3_256(message).digest()
            assert np.array_equal(run.run(None, {"state": state[None]})[0][0], bits)


def test_words_and_bits_are_one_permutation() -> None:
    state = np.random.default_rng(1).bytes(200)
    for rounds in (1, 3):
        expected = rounds_of(state, rounds)
        (lanes,) = session(words.to_onnx(rounds)).run(None, {"state": np.frombuffer(state, np.uint64).reshape(1, 5, 5)})
        assert lanes.tobytes() == expected
        (bits,) = session(to_onnx(rounds)).run(None, {"state": p.planes(state)[None]})
        assert np.array_equal(bits[0], p.planes(expected[: p.DIGEST]))


def test_model_and_messages_can_be_made_again(tmp_path: Path) -> None:
    assert isinstance(APP, apps.App)
    main(tmp_path)
    assert (tmp_path / "keccak.onnx").read_bytes() == APP.model.read_bytes()
    with np.load(APP.data) as stored, np.load(tmp_path / "test.npz") as again:
        assert all(np.array_equal(stored[name], again[name]) for name in ("state", "labels"))


def test_vta_computes_all_but_the_moves_of_data_and_no_bit_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "rounds.onnx").write_bytes(to_onnx(2).SerializeToString())
    states = [p.planes(np.random.default_rng(n).bytes(200)) for n in range(4)]
    expected = [p.planes(rounds_of(np.packbits(s, bitorder="little").tobytes(), 2)[: p.DIGEST]) for s in states]
    np.savez(tmp_path / "test.npz", state=np.array(states), labels=np.array(expected))
    plan = compile_model(tmp_path / "rounds.onnx", ["vta"])
    assert plan.counts["vta"] == {"conv2d": 12, "alu": 2}
    document = cosimulate(plan, tmp_path / "test.npz", metric="pixel-accuracy").document
    assert (document["reference"]["value"], document["accelerated"]["value"]) == (1, 1)
    assert {o["relative_error"] for o in document["offloads"]} == {0}


@pytest.mark.parametrize("target", ["flexasr", "hlscnn", "vta"])
def test_operators_on_the_bits_of_words_stay_on_the_host_with_their_reason(target: str, tmp_path: Path) -> None:
    (tmp_path / "words.onnx").write_bytes(words.to_onnx(1).SerializeToString())
    document = plan_files(compile_model(tmp_path / "words.onnx", [target])).document
    assert not document["offloads"]
    bitwise = [h for h in document["host"] if h["op"].startswith("Bit")]
    assert len(bitwise) == 16
    reason = "no core operators compute with the bits of a word; with one bit an element, products and sums of codes do"
    assert {h["why_not"] for h in bitwise} == {f"unsupported operator: {h['op']} ({reason})" for h in bitwise}
