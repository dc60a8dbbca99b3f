"""Displays of notebooks."""
