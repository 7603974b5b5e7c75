"""Nests: instructions that run a whole nest of loops, whose extents and addresses are configuration registers."""
