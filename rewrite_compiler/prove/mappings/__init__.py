"""The court of mappings: drivers on symbolic devices."""
