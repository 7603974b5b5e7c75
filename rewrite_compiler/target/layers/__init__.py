"""Layers that many accelerators compute: their meanings as patterns, their sums on codes, and the formats of both."""
