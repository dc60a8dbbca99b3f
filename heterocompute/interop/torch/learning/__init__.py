"""Learned rounding: blocks of a model, and their codes."""
