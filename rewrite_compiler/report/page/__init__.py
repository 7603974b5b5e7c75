"""The page of a report: sections, headline, verdict, evidence."""
