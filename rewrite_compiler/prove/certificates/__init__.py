"""Certificates: kept verdicts, their keys and documents."""
