"""ONNX models in and out; input is taken to be hostile."""
