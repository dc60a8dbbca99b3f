"""Families of language models, one record each: what their files say, and how their layers are built."""
