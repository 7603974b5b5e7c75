"""Mapping: problems, clusters of an architecture, schedules of one on the other, and what they move between memories."""
