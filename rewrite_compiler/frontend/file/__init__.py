"""Model files: untrusted bytes to parsed ONNX messages and numpy arrays."""
