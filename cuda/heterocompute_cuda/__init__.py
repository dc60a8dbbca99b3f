"""The compiled CUDA kernels of heterocompute, which reads these files when a CUDA device is first used."""
