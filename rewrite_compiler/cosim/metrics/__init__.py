"""Scores of a co-simulation beside the host's."""
