"""Studies over designs: sweeps, differences, advice."""
