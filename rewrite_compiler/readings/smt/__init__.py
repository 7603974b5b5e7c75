"""The z3 reading of terms and steps."""
