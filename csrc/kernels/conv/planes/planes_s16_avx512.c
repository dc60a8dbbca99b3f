/* Planes of pairs of codes by vpmaddwd of 16 pixels: hc_planes_s16_avx512; kernels/conv/conv.h. */
#include <immintrin.h>

static inline __m512i dot(__m512i sum, __m512i x, __m512i w) { return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w)); }

#include "kernels/conv/planes/planes_s16_avx512.h"

HC_PLANES_S16(avx512)
