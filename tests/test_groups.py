"""Tests that share work run in one process: pytest-xdist reads their groups."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.xdist_group("groups")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all tests")
def test_a_group_is_part_of_the_name_by_which_tests_are_sent_to_processes(request: pytest.FixtureRequest) -> None:
    """With pytest 9.2 it is not: pytest-xdist 3.8 writes the group into an attribute that is no longer read."""
    assert request.node.nodeid.endswith("@groups")
