"""Machines as TOML files: a file of one's own, and the published machines of this package."""
