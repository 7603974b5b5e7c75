"""Batches on workers of a cluster."""
