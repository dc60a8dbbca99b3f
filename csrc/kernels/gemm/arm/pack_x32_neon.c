/* Transposing 4 rows by 4 units in registers, then one row. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

static void four_rows(const char *from, int64_t row_bytes, int64_t units, char *to, int lanes, uint32_t flip) {
    const uint32x4_t flips = vdupq_n_u32(flip);
    for (int64_t u = 0; u < units; u += 4, from += 16, to += 16 * (int64_t)lanes) {
        uint32x4_t row[4];
        for (int i = 0; i < 4; i++)
            row[i] = veorq_u32(vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)from + i * row_bytes)), flips);
        const uint32x4x2_t low = vtrnq_u32(row[0], row[1]), high = vtrnq_u32(row[2], row[3]);
        for (int i = 0; i < 2; i++) { /* units i and i + 2 */
            const uint64x2_t first = vreinterpretq_u64_u32(low.val[i]), second = vreinterpretq_u64_u32(high.val[i]);
            vst1q_u8((uint8_t *)to + i * (int64_t)lanes * 4, vreinterpretq_u8_u64(vzip1q_u64(first, second)));
            vst1q_u8((uint8_t *)to + (i + 2) * (int64_t)lanes * 4, vreinterpretq_u8_u64(vzip2q_u64(first, second)));
        }
    }
}

#include "kernels/gemm/pack_x32.h"

void hc_pack_x32_neon(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                      uint32_t flip) {
    other_rows(rows, row_bytes, 0, n_rows, units, panel, lanes, flip);
}
