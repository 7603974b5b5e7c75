"""ONNX graphs: their checks, their upgrade to one operator set, and the way back from programs to ONNX."""
