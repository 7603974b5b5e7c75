"""The Verilog reading: printer, reader of the emitted subset, its meaning in z3, equivalence with steps."""
