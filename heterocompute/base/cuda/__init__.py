"""What is peculiar to CUDA: its driver, the streams of other libraries, and how they lend arrays."""
