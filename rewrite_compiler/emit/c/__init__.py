"""Plans and devices as C."""
