/* Nonzero codes of 2:4 times few vectors. Four bits of metadata, a quad, are the index into a table with the bytes of its
 * two codes that each column takes. The sums of the other columns are not changed.
 */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { QUADS = 16, AHEAD = 8192 }; /* of 64 columns; bytes prefetched ahead */

/* Byte b of column j of a quad with metadata q; 255: not a nonzero. */
#define BYTE(q, j, b) (((q) & 3) == (j) ? (b) : ((q) >> 2 & 3) == (j) ? 4 + (b) : 255)
#define COLUMN(q, j) BYTE(q, j, 0), BYTE(q, j, 1), BYTE(q, j, 2), BYTE(q, j, 3)
#define QUAD(q) {COLUMN(q, 0), COLUMN(q, 1), COLUMN(q, 2), COLUMN(q, 3)}
#define FOUR(q) QUAD(q), QUAD((q) + 1), QUAD((q) + 2), QUAD((q) + 3)
static const uint8_t PLACES[16][16] = {FOUR(0), FOUR(4), FOUR(8), FOUR(12)};

INLINE void walk(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx, int n_vectors,
                 float *sums) {
    float32x4_t sum[QUADS];
#pragma GCC unroll 16
    for (int i = 0; i < QUADS; i++)
        sum[i] = vld1q_f32(sums + 4 * i);
    for (int64_t word = 0; word < words; word++, metadata += 8, codes += 2 * QUADS, x += 64) {
        uint64_t quads;
        memcpy(&quads, metadata, sizeof quads);
        __builtin_prefetch((const char *)codes + AHEAD, 0, 2);
        __builtin_prefetch((const char *)codes + AHEAD + 64, 0, 2);
#pragma GCC unroll 16
        for (int i = 0; i < QUADS; i++) {
            const uint8x16_t places = vld1q_u8(PLACES[quads >> 4 * i & 15]);
            const uint8x16_t two = vreinterpretq_u8_f32(vcombine_f32(vld1_f32(codes + 2 * i), vdup_n_f32(0)));
            const float32x4_t c = vreinterpretq_f32_u8(vqtbl1q_u8(two, places));
            const uint32x4_t others = vcltzq_s32(vreinterpretq_s32_u8(places));
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++) {
                float *to = sums + v * 64 + 4 * i;
                const float32x4_t old = n_vectors == 1 ? sum[i] : vld1q_f32(to);
                const float32x4_t new = vbslq_f32(others, old, vfmaq_f32(old, vld1q_f32(x + v * ldx + 4 * i), c));
                if (n_vectors == 1)
                    sum[i] = new;
                else
                    vst1q_f32(to, new);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < QUADS && n_vectors == 1; i++)
        vst1q_f32(sums + 4 * i, sum[i]);
}

void hc_gemv_24_neon(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx,
                     int n_vectors, float *sums) {
    if (n_vectors == 1)
        walk(words, metadata, codes, x, ldx, 1, sums);
    else if (n_vectors == 2)
        walk(words, metadata, codes, x, ldx, 2, sums);
    else
        walk(words, metadata, codes, x, ldx, 4, sums);
}
