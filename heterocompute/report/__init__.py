"""Tables, pages and figures from plain lists of dicts. Nothing here imports the rest of the package."""
