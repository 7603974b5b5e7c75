"""Certificates: cached verdicts, their keys, and the document that ships."""
