"""Tests that share work run in one process: pytest-xdist reads their groups; what each file takes is written on demand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from seconds import COLLECTION, Seconds, table

pytestmark = pytest.mark.xdist_group("groups")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all tests")
def test_a_group_is_part_of_the_name_by_which_tests_are_sent_to_processes(request: pytest.FixtureRequest) -> None:
    """With pytest 9.2 it is not: pytest-xdist 3.8 writes the group into an attribute that is no longer read."""
    assert request.node.nodeid.endswith("@groups")


def test_seconds_of_tests_are_those_of_their_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Those of a process that a test starts and waits for count, too."""
    plugin = Seconds(tmp_path / "seconds")
    running = plugin.pytest_runtest_protocol(request.node)
    next(running)
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    with pytest.raises(StopIteration):
        next(running)
    plugin.pytest_collection_finish(request.session)
    (name, spent), (collected, _) = map(json.loads, plugin.file.read_text("utf-8").splitlines())
    assert (name.rpartition("/")[2], spent >= 0.05, collected) == ("test_groups.py", True, COLLECTION)
    assert [*table('["a", 1.5]\n["b", 2.0]\n["a", 1.0]\n')] == ["     2.5 s     2 × a", "     2.0 s     1 × b", "     4.5 s in all"]
