"""Chips and their limits, this machine among them; the terms of the field."""
