"""Tensor programs: types, the Program noun, its text form, its evaluation and verification."""
