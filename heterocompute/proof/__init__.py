"""Proofs about files and arrays: where a checkpoint comes from, and where two checkpoints differ."""
