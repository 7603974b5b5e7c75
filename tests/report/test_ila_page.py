"""Accelerator models as pages: everything in the model is on its page, and the pages of the documentation are up to date."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from command import flexmatch, refused
from pages import ROOT

from rewrite_compiler.ila import Bits, Ila, mmio
from rewrite_compiler.lang import array, assign, let, loop, reduce_sum, require, select, seq, update, when
from rewrite_compiler.lang.listing import diagnostics_of, step_listing
from rewrite_compiler.report.graphics.blocks import markdown, text_lines
from rewrite_compiler.report.graphics.ila import ila_blocks
from rewrite_compiler.target import find_target

SHIPPED = ("flexasr", "genesys", "hlscnn", "hvx", "vta")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_page_of_an_accelerator_is_up_to_date(name: str) -> None:
    """Else run: flexmatch show ila NAME --markdown docs/reference/accelerators/NAME.md"""
    page = ROOT / "docs" / "reference" / "accelerators" / f"{name}.md"
    assert page.read_text("utf-8") == markdown(ila_blocks(find_target(name).ila()))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_state_instruction_field_and_diagnostic_is_on_the_page(name: str) -> None:
    model = find_target(name).ila()
    text = "\n".join(text_lines(ila_blocks(model)))
    words = set(text.replace("[", " ").replace("(", " ").replace(",", " ").split())
    assert model.states.keys() <= words
    single = [i for i in model.instructions.values() if not re.match(r"[a-z]+\d_", i.name)]  # units are shown once
    assert {i.name for i in single} <= words
    for i in single:
        assert set(i.operands) <= words, i.name
        assert all(sentence in text for _, sentence in diagnostics_of(i.update)), i.name


def test_a_register_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command and the bits that set it."""
    monkeypatch.chdir(tmp_path)
    answer = flexmatch("show", "ila", "hlscnn", "kernel_size")
    assert answer.code == 0
    assert "cfg_wr_conv_kernel_size" in answer.out
    assert "write 0x3200005c" in answer.out
    assert "conv_kernel_row_stride := row_stride" in answer.out
    row = flexmatch("show", "ila", "flexasr", "gb_control_num_timestep_1").out
    assert "config_gb_control: data[79:64]" in row
    refused(flexmatch("show", "ila", "vta", "nothing"), 2, (
        'error[F203]: vta has no instruction or state with "nothing" in its name\n  help: leave it out to see all'
    ))  # fmt: skip


def test_documents_and_pages_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = flexmatch("show", "ila", "vta:behaviour=hls", "--html", "vta.html", "--json", "vta.json")
    assert (answer.code, answer.new) == (0, ("vta.html", "vta.json"))
    page = Path("vta.html").read_text("utf-8")
    HTMLParser().feed(page)
    assert "default-src 'none'" in page
    assert "<script" not in page
    document = json.loads(Path("vta.json").read_text("utf-8"))
    assert document["schema"] == "flexmatch.ila/1"
    assert document["parameters"]["behaviour"] == "hls"
    gemm = next(i for i in document["instructions"] if i["name"] == "gemm")
    assert {"name": "uop_bgn", "input": "data", "low": 8, "high": 20} in gemm["fields"]
    assert gemm["diagnostics"][0]["code"] == "I103"


def small() -> Ila:
    """Return a model with every kind of step."""
    m = Ila("small", "A model with <markup> & pipes | in its words.")
    bus = mmio(m)
    data, count = m.memory("data", (8,), 8), m.register("count", 4)
    m.register("mode", 2, doc="What <b>is</b> done.")
    m.config("config", bus.write(0x10), {"mode": Bits(0, 1)})

    @m.instruction("go", bus.write(0x20), {"by": Bits(0, 2)})
    def go(by):  # type: ignore[no-untyped-def]
        """Do it."""
        mode = m.s.mode[()]
        total = array(lambda: reduce_sum(lambda k: data[k], 8) % 256, ())
        place = (by[()] * 3 + count[()] * 5 + mode * 7 + 1 + by[()] * count[()]) % 8
        chosen = select(mode == 0, 1, select(mode == 1, data[place], data[place] // 2))
        return seq(
            require(by[()] > 0, "I112", "by must be positive"),
            let(total, lambda t: when(mode == 2, assign(data, t[()], place), update(data, 8, lambda i: ((i,), chosen)))),
            loop(count[()], lambda n: assign(data, n, n % 8)),
        )

    return m


def test_steps_are_written_for_people() -> None:
    """Short variables, conditions as cases, a name for what occurs twice; diagnostics apart."""
    update = small().instructions["go"].update
    assert step_listing(update) == [
        "let local = sum(data[i] for i in 0 … 7) % 256",
        "when mode == 2:",
        "    data[(by * 3 + count * 5 + mode * 7 + 1 + by * count) % 8] := local",
        "else:",
        "    data[j] := (mode → 0: 1, 1: t1, else t1 // 2)   for j in 0 … 7",
        "        with t1 = data[(by * 3 + count * 5 + mode * 7 + 1 + by * count) % 8]",
        "for k in 0 … count - 1:",
        "    data[k % 8] := k",
    ]
    assert diagnostics_of(update) == [("I112", "by must be positive")]


def test_words_of_a_model_are_escaped() -> None:
    from rewrite_compiler.report.graphics.blocks import html_page

    page = html_page("small", ila_blocks(small()))
    assert "<b>is</b>" not in page
    assert "&lt;markup&gt; &amp; pipes" in page
    assert "What <b>is</b> done." in markdown(ila_blocks(small()))
