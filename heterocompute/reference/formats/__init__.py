"""The definitions of the families of formats, one module for each, with the family's name."""
