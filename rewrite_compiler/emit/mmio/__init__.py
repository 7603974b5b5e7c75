"""Commands of a plan, recorded and replayed."""
