"""The import of a checked ONNX graph: types, shapes, lowering of nodes, and the integer form of quantised models."""
