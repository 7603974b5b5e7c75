"""E-graphs: saturation in a child process, exact extraction."""
