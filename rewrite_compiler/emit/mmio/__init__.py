"""The commands of a plan: recorded as traces, listed and replayed."""
