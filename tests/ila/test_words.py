"""A stream of words in machine code does what the queues of the device do, word by word: memories, tokens and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila.simulation import stream_device as streams
from rewrite_compiler.ila.simulation import word_stream_loop as loops
from rewrite_compiler.ila.simulation.word_stream_loop import word_loop_of
from rewrite_compiler.ila_models import vta
from rewrite_compiler.readings.native import jit as native_jit

TOKENS = ("pop_prev", "pop_next", "push_prev", "push_next")
pytestmark = pytest.mark.xdist_group("words")  # one process compiles each loop once
MODEL = vta.build(log_inp_buffer=9, log_wgt_buffer=13, log_acc_buffer=11, log_uop_buffer=6)
IMAGE = 1 << 14


def program(seed: int, tokens: bool) -> list[int]:
    """Return words: transfers of small tensors, sums, products, and some that are of no instruction or leave the memories."""
    random = np.random.default_rng(seed)
    names = ["load_inp", "load_acc", "load_wgt", "load_uop", "store", "load_inp", "store", "gemm", "alu_add", "finish"]
    found = []
    for _ in range(60):
        i = MODEL.instructions[names[int(random.integers(len(names) - (random.random() < 0.7)))]]
        most = {
            "x_size": 4,
            "y_size": 3,
            "x_stride": 6,
            "sram_base": 3,
            "dram_base": 20,
            "uop_end": 3,
            "uop_bgn": 0,
            "dst_factor_out": 2,
            "dst_factor_in": 2,
            "src_factor_out": 2,
            "src_factor_in": 2,
            "imm": 40,
        }
        most |= dict.fromkeys(("iter_out", "iter_in", "lp_0", "lp_1", "x_pad_0", "y_pad_1"), 2)
        given = {n: int(random.integers(0, most.get(n, 1) + 1)) for n, o in i.operands.items() if not o.leaf.shape}
        for n in TOKENS:
            given[n] = int(tokens and random.random() < 0.08)
        if random.random() < 0.02:
            given = {n: (1 << 20) if n == "dram_base" else x for n, x in given.items()}
        found.append(assemble(i, **{n: x for n, x in given.items() if n in i.operands})["data"])
        if random.random() < 0.02:
            found.append(0x7)
    return found


def ran(reading: str, words: object) -> tuple[object, ...]:
    """Return all that is left of a program: memories, tokens, how much ran, and what was refused."""
    image = np.arange(IMAGE, dtype=np.uint8)
    sim = MODEL.simulator(dram=image, reading=reading)
    refused = ""
    for part in (words[:25], words[25:]):  # type: ignore[index]
        try:
            sim.run(part)
        except FlexmatchError as refusal:
            refused += str(refusal)
            break
    held = sorted(sim.held_tokens) if not refused else None
    return image.tobytes(), [sim.state(n).tobytes() for n in MODEL.states if n not in MODEL.externals], held, sim.executed, refused


@pytest.mark.parametrize(("tokens", "singles"), [(False, 0), (True, 0), (False, 1 << 30), (True, 1 << 30)])
def test_words_are_what_the_oracle_runs(
    monkeypatch: pytest.MonkeyPatch, tokens: bool, singles: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both loops: that of the transfers, and that of everything, which is there at once where words have been waited for."""
    monkeypatch.setattr(streams, "PATIENCE", 1)
    monkeypatch.setattr(loops, "SINGLES", singles)
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path_factory.getbasetemp() / f"loops-{singles}"))  # no other loop is found there
    loops.word_loop_of.cache_clear()
    kinds = set()
    for seed in range(12):
        words = program(seed, tokens)
        expected = ran("oracle", words)
        assert ran("native", words) == expected, seed
        kinds.add((expected[4] == "", bool(expected[2])))
    assert len(kinds) >= 2


def test_rows_of_bytes_are_words() -> None:
    words = program(3, tokens=False)
    rows = np.array([list(w.to_bytes(16, "little")) for w in words], np.uint8)
    assert ran("native", rows) == ran("native", words)


def test_what_moves_data_is_compiled() -> None:
    made = word_loop_of(MODEL)
    assert made is not None
    assert list(made.tokens) == ["g2l", "l2g", "s2g", "g2s"]


def test_words_that_compute_run_in_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """No word but FINISH, for which a host waits, is executed one by one."""
    monkeypatch.setattr(streams, "PATIENCE", 1)
    monkeypatch.setattr(loops, "SINGLES", 0)
    words = [w for w in program(8, tokens=False) if w != 7]
    sim, finish = MODEL.simulator(dram=np.arange(IMAGE, dtype=np.uint8), reading="native"), MODEL.instructions["finish"]
    found = [sim.decode({"data": w}) for w in words]
    sim.run(words)
    assert {"gemm", "alu_add"} <= {i.name for i in found if i is not None}
    assert sim.executed == len(words)
    assert sim.singles == sum(i is finish for i in found)


def test_the_loop_of_everything_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model of the same terms takes what is kept, diagnostics and all; one of other sizes does not."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    sizes = {"log_inp_buffer": 8, "log_wgt_buffer": 12, "log_acc_buffer": 10, "log_uop_buffer": 5}
    first, again, other = vta.build(**sizes), vta.build(**sizes), vta.build(**sizes | {"log_acc_buffer": 11})
    assert word_loop_of(first, loops.CACHED) is None
    made = word_loop_of(first, loops.ALL)
    before = native_jit.counts.compiled
    found = word_loop_of(again, loops.CACHED)
    assert made is not None
    assert found is not None
    assert native_jit.counts.compiled == before
    assert word_loop_of(other, loops.CACHED) is None
    kinds = [[(r.code, r.sentence, [n for n, _ in r.values]) for r in w.function.raises] for w in (made, found)]
    assert kinds[0] == kinds[1] != []
