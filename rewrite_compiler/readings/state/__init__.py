"""Steps run on numpy memories."""
