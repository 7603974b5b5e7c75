"""Classical models: operators of ai.onnx.ml."""
