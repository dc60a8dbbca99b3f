/* Vectors of floats of the SIMD set for which a file is compiled; formats/lanes.h has vectors of one float. Code
 * written with these does the same operations on every set, each rounded once; formats/lanes.h defines them.
 */
#ifndef HC_LANES_H
#define HC_LANES_H

#include "formats/simd/simd.h"

static inline uint16_t lanes_to_f16(float a) { return simd_to_half(a); }
static inline float lanes_from_f16(uint16_t a) { return simd_from_half(a); }

#endif
