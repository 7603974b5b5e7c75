"""Checks of a target: golden vectors, accuracy, capacities, problems of its model."""
