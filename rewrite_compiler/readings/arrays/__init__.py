"""The arrays reading: terms evaluated by numpy over whole index grids."""
