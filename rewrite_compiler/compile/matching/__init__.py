"""Matching: which device operations match, and which of them are extracted."""
