"""Verilog of an accelerator."""
