"""The commands about origin and differences: verify, diff, vectors."""
