"""Drawings and charts of a report: markup, architecture, graphs, blocks."""
