"""ONNX: models written with packed weights (`model`, `matmul`), and weights read from any graph (`graph`)."""
