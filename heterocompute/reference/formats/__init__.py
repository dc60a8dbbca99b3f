"""The definition of each family of formats, a module named as the family."""
