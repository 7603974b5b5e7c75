"""Mappers: ways to search a space of mappings for the best, all on the same space and cost model."""
