/* Several floats as one, by the SIMD set that a file is compiled for; formats/lanes.h has one. What is written with these
 * does the same operations everywhere, each rounded once; formats/lanes.h says what each is.
 */
#ifndef HC_LANES_H
#define HC_LANES_H

#include "formats/simd/simd.h"

static inline uint16_t lanes_to_f16(float a) { return simd_to_half(a); }
static inline float lanes_from_f16(uint16_t a) { return simd_from_half(a); }

#endif
