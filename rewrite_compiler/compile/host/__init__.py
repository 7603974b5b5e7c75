"""What stays on the host."""
