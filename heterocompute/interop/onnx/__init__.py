"""Evaluation of ONNX models: matmuls of this package, and sessions of another runtime between them."""
