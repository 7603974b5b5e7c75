"""Compute the package list: the public names, the engine, and the four content folders under their installed names."""

from setuptools import find_packages, setup

CONTENT = ("rules", "ila_models", "targets", "apps")


def content_packages(folder: str) -> list[str]:
    """Return the packages of one content folder by installed name."""
    return [f"rewrite_compiler.{folder}", *(f"rewrite_compiler.{folder}.{p}" for p in find_packages(folder))]


setup(packages=["flexmatch", *find_packages(include=["rewrite_compiler*"]), *(p for f in CONTENT for p in content_packages(f))])
