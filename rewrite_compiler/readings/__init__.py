"""Readings of the language: one meaning, evaluated by Python, numpy, machine code, C, z3 and Verilog."""
