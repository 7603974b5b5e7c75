"""Collections of garbage are paused where much is made that stays, and what was made is not traversed at once afterwards."""

from __future__ import annotations

import gc

from rewrite_compiler.garbage import paused_collection


def test_what_is_made_while_collections_are_paused_is_old_afterwards() -> None:
    gc.collect()
    with paused_collection():
        assert not gc.isenabled()
        rows = [[number] for number in range(100_000)]
    assert gc.isenabled()
    young = gc.get_objects(generation=0)
    assert len(young) < 10_000 or gc.get_freeze_count()
    assert len(rows) == 100_000


def test_a_pause_within_a_pause_does_not_end_it() -> None:
    with paused_collection():
        with paused_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
