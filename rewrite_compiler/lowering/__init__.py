"""Lowering of terms and steps to the loop IR, and the passes on it that C, LLVM and Verilog share."""
