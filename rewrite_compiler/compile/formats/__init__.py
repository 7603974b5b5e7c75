"""Number formats chosen by calibration."""
