"""Regions of a program that are saturated by themselves."""
