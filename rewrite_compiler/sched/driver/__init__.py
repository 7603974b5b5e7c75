"""Drivers from a model: an operation is matched with what one command computes; layouts, transfers and registers follow."""
