"""Classical machine-learning operators (ai.onnx.ml): their checks, types, and definitions by matrix products."""
