"""ONNX: writes models with packed weights (`model`, `matmul`), and reads weights of any graph (`graph`)."""
