"""Verilog modules of accelerators: generated, and checked against the model."""
