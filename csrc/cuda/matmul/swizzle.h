/* Rows of shared memory without gaps that no two lanes read from one bank: PIECES pieces of 16 bytes a row, 1, 2, 4 or 8. Piece i of
 * row r is at piece i xor (r / (8 / PIECES)) % PIECES of it, so that a piece of each of eight rows, as a matrix needs them, and
 * eight pieces of neighbouring rows, as copies write them, touch all 32 banks. Rows that are eight apart have the same order.
 */
#ifndef HC_CUDA_SWIZZLE_H
#define HC_CUDA_SWIZZLE_H

#include "cuda/device.h"

/* The byte at which a piece of a row begins. To change the piece by a power of two, flip the bit of it: place ^ 16 * power. */
template <int PIECES> static inline HC_DEVICE int hc_piece_place(int row, int piece) {
    return (row * PIECES + (piece ^ row / (8 / PIECES) % PIECES)) * 16;
}

#endif
