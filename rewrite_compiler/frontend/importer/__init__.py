"""From ONNX nodes to operations."""
