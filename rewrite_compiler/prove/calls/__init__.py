"""Calls of a design with several lanes an element, proved on the design with one."""
