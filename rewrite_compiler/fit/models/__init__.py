"""Cost models: what a mapping costs, read as published models read it."""
