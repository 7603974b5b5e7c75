"""Diagnosis of a loss: candidates, trials, attribution, repair."""
