"""Evaluation of the parts of a program that stay on the host."""
