"""Spoken keywords: a 64-tap filter, a spectrogram by a factored Fourier transform and a small network, as one model."""
