"""ONNX graphs: names, scopes, structure, spelling."""
