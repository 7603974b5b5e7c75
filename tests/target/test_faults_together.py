"""check calls each function of a target, and tells of all that are wrong at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import flexmatch
from test_user_functions import FUNCTIONS, text

BODIES = {
    "build": "raise KeyError('lost')",
    "describe": "return None",
    "costs": "return 1 // 0",
    "capacities": "return None",
    "levels": "return {'x': 3}",
    "residency": "raise ValueError('none')",
    "drive": "raise KeyError('lost')",
    "codes": "return 'a text'",
}
TOGETHER = {
    "of each kind": ("describe", "levels", "residency", "drive", "codes"),
    "accounts and driver": ("costs", "drive"),
    "a model and limits": ("build", "capacities", "residency", "levels"),
    "a model and numerics": ("build", "codes"),
    "limits and costs": ("capacities", "costs"),
    "one": ("codes",),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_all_functions_that_are_wrong_are_told_with_their_lines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = text()
    for function in TOGETHER[name]:
        start = source.index(":\n", source.index(FUNCTIONS[function][0])) + 2
        source = f"{source[:start]}    {BODIES[function]}\n{source[start:]}"
    Path("toy.py").write_text(source, "utf-8")
    lines = source.splitlines()
    answer = flexmatch("check", "./toy.py", "--groups", "1", "--json", "-")
    told = [(p["place"], p["sentence"]) for p in json.loads(answer.out)["problems"]]
    assert answer.code == 1
    assert len(told) == len(TOGETHER[name]), told
    for function in TOGETHER[name]:
        body = next(n for n, line in enumerate(lines, 1) if line == f"    {BODIES[function]}" and FUNCTIONS[function][0] in lines[n - 2])
        places = "|".join(map(str, (body, body - 1, body - 2)))
        assert any(re.search(rf"toy\.py:({places})$", place) and "must return" in sentence for place, sentence in told), (function, told)
