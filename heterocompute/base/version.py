"""The version of the package, for files that one version writes and another reads."""

__version__ = "0.1.0"
