"""Model files, read with care."""
