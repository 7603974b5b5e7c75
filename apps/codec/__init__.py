"""An image codec's block: cosine transform, quantisation, and back, as a model of convolutions, scored by its signal-to-noise ratio."""
