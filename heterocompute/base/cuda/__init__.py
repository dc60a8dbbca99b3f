"""CUDA alone: its driver, the streams of other libraries, and how they lend arrays."""
