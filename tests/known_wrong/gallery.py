"""The false rules by module."""

from __future__ import annotations

import importlib
from itertools import chain

from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import rules_in, unique_rules

FALSE = ("linear", "layout", "convolution", "softmax")


def gallery(*modules: str) -> tuple[Rule, ...]:
    return unique_rules(chain.from_iterable(rules_in(importlib.import_module(f"known_wrong.{name}")) for name in modules))
