"""Other spellings of a model."""
