"""Which tests one process has together, those that share work which each process would do for itself otherwise, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType

import pytest

LONGEST = ("tests/test_types.py", "tests/test_docs.py")  # of tests without a group; pytest-xdist begins with groups


def put_longest_first(items: list[pytest.Item]) -> None:
    """Begin with long tests, so that at the end of a run no process waits for another that has just begun one."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def group_by_shared_work(items: Sequence[pytest.Item]) -> None:
    """Give the tests of a file one process when they share a cached function or a fixture of the file, and name no group themselves."""
    for item in items:
        if isinstance(item, pytest.Function) and not item.get_closest_marker("xdist_group") and _shares_work(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares_work(item: pytest.Function) -> bool:
    return _has_cached_function(item.module) or any(
        definitions[-1].scope == "module" for definitions in item._fixtureinfo.name2fixturedefs.values()
    )


@cache
def _has_cached_function(module: ModuleType) -> bool:
    return any(hasattr(f, "cache_info") and getattr(f, "__module__", "") == module.__name__ for f in vars(module).values())
