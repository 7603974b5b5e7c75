"""One source node while it is lowered."""
