"""Offloads computed a second time by other means, and compared."""
