"""Keccak-f[1600], the permutation of SHA-3, as products and sums of codes: exact or wrong in every bit."""
