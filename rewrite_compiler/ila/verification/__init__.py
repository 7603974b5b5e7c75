"""Verification of models: decodes, binding times, reachability, conflicts and queue orders."""
