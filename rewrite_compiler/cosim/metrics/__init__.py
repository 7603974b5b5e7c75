"""Metrics of outputs over a data set, the float32 reference, and statistical comparison of two runs."""
