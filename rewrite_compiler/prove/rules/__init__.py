"""The court of rules."""
