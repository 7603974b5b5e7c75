"""Mappings as texts: each form is printed and parsed back to the same mapping."""
