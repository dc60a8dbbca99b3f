"""Arrays as they are stored: quantized, sparse, in EIE's storage, as a bitmap, and prepared for many products."""
