"""Architectures that are no target: memories and arrays of units with energies, for `flexmatch map --arch NAME`."""
