"""What arithmetic costs in silicon: energy and area of gates and of multiply-adds, and what they bring."""
