"""Networks as graphs of layers: the built-in ones, ONNX files, and how their operations are counted."""
