"""A second, independent implementation of the definitions of formats and matmuls in plain NumPy, from their text.

It does not use the package's own reference, and computes the expected results itself. Learned codebooks are an
exception: they are only checked, because equal costs have several solutions. `run.py` draws random cases and compares.
If the two implementations differ, the text of the definition decides. Not covered: codebooks of several dimensions,
emulated matmuls, EIE, CSR and bitmaps.
"""
