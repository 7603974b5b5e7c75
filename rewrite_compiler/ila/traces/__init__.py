"""Traces of commands as files and assembly."""
