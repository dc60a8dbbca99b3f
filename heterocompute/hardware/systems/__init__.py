"""Whole systems: several devices, the pipeline that feeds them, which device runs which layer, and measured runs."""
