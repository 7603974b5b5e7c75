"""Kernels: which subterms of the arrays reading machine code computes."""
