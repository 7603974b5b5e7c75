"""ONNX models: read from a file, checked, and imported as programs in core operators."""
