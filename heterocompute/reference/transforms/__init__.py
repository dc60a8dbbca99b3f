"""Convolutions by transforms of tiles: Winograd's transforms and the Fourier transform."""
