"""Traces of commands: in memory, as files, and as ILA assembly."""
