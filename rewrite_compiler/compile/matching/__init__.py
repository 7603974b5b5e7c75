"""What operations match, and which of them are chosen."""
