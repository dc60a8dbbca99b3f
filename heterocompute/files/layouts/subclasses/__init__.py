"""Layouts of state dicts whose weights are tensor subclasses of torch: quanto and torchao."""
