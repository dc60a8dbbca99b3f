"""Evaluation of ONNX models: our products, and sessions of another runtime for everything between them."""
