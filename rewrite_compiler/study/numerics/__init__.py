"""Numerics of operations, term by term: where each is written, what it does on data, and what another one would do."""
