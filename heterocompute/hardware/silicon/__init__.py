"""Arithmetic in silicon: energy and area of gates and of multiply-adds, and the savings of number formats."""
