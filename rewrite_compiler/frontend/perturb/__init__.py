"""Equivalent rewritings of ONNX models, to test that matching does not depend on the exporter."""
