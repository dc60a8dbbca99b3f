"""Tables, pages and figures from plain lists of dicts. This package imports nothing from the rest of heterocompute."""
