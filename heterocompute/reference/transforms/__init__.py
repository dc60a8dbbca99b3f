"""Convolutions by transforms of tiles: Winograd's and the Fourier transform."""
