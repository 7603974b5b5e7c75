"""E-graphs as tables."""
