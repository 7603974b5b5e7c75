"""Real functions in single precision as terms, each a sum of products in a fixed order."""
