/* Planes of pairs of codes by vpdpwssd of 16 pixels: hc_planes_s16_avx512vnni; kernels/conv/conv.h. */
#include <immintrin.h>

/* As in kernels/dots/avx512vnni.h: the intrinsic makes gcc 12 copy accumulators. */
static inline __m512i dot(__m512i sum, __m512i x, __m512i w) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}

#include "kernels/conv/planes/planes_s16_avx512.h"

HC_PLANES_S16(avx512vnni)
