"""The Verilog reading, and its reader."""
