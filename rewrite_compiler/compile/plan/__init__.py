"""The plan and its document."""
