"""Quantized weights as other programs store them: one module for each layout, from codes, scales and zero points."""
