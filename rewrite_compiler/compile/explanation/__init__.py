"""Explanations of a plan: reasons, alternatives, statistics, and a check of derivations."""
