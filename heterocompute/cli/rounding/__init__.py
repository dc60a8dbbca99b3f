"""The commands that round with calibration or by a score: ptq, search and convert-model."""
