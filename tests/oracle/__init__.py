"""A second, independent reading of the definitions of formats and products: plain NumPy, from their words alone.

Nothing in here uses the package's own reference, and no answer of the package is needed to know the right one (but for
learned codebooks, which are judged: equal costs have more than one answer). `run.py` draws random cases and compares.
Where the two readings differ, the words of the definition decide. Left out: codebooks of several dimensions, the
emulated products, EIE, CSR and bitmaps.
"""
