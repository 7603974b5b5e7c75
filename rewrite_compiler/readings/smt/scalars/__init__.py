"""Scalar terms as z3 reads them: real numbers, floating point and integers that wrap around."""
