"""Chips and what they can do at most, this machine among them; the words of the field."""
