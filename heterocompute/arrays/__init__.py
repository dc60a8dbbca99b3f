"""Stored arrays: quantized, sparse, in EIE's storage, as a bitmap, and prepacked for many matmuls."""
