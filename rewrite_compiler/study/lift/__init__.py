"""Lifting: complete operations of a target, written as text, from what its instructions compute."""
