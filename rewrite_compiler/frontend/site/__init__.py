"""The context of one source node during import: its operands, constant folding, and shared constants."""
