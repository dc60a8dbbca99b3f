"""Rounding to what the caller gives: functions of values, and codebooks."""
