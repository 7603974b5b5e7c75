"""Problems: operations as loop dimensions and affine projections, read from their meaning, a short text or JSON."""
