"""Networks as graphs of layers: built-in ones, ONNX files, and the counting of their operations."""
