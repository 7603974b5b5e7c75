"""Handwritten 8×8 digits: a convolutional and a fully connected classifier, and how they were trained."""
