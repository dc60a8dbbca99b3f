/* Transposing 4 rows by 4 units in registers, then one row. */
#include "kernels/kernel.h"

#include <arm_neon.h>
#include <string.h>

static void four_rows(const char *from, int64_t row_bytes, int64_t units, char *to, int lanes, uint32_t flip) {
    const uint32x4_t flips = vdupq_n_u32(flip);
    for (int64_t u = 0; u < units; u += 4, from += 16, to += 16 * lanes) {
        uint32x4_t row[4];
        for (int i = 0; i < 4; i++)
            row[i] = veorq_u32(vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)from + i * row_bytes)), flips);
        const uint32x4x2_t low = vtrnq_u32(row[0], row[1]), high = vtrnq_u32(row[2], row[3]);
        for (int i = 0; i < 2; i++) { /* units i and i + 2 */
            const uint64x2_t first = vreinterpretq_u64_u32(low.val[i]), second = vreinterpretq_u64_u32(high.val[i]);
            vst1q_u8((uint8_t *)to + i * lanes * 4, vreinterpretq_u8_u64(vzip1q_u64(first, second)));
            vst1q_u8((uint8_t *)to + (i + 2) * lanes * 4, vreinterpretq_u8_u64(vzip2q_u64(first, second)));
        }
    }
}

static void one_row(const char *from, int64_t units, char *to, int lanes, uint32_t flip) {
    for (int64_t u = 0; u < units; u++) {
        uint32_t unit;
        memcpy(&unit, from + u * 4, sizeof unit);
        unit ^= flip;
        memcpy(to + u * lanes * 4, &unit, sizeof unit);
    }
}

void hc_pack_x32_neon(const void *rows, int64_t row_bytes, int n_rows, int64_t units, void *panel, int lanes,
                      uint32_t flip) {
    const int64_t whole = units / 4 * 4;
    const char *from = rows;
    char *to = panel;
    int row = 0;
    for (; row + 4 <= n_rows; row += 4)
        four_rows(from + row * row_bytes, row_bytes, whole, to + row * 4, lanes, flip);
    for (int i = 0; i < n_rows; i++) {
        const int64_t done = i < row ? whole : 0;
        one_row(from + i * row_bytes + done * 4, units - done, to + (done * lanes + i) * 4, lanes, flip);
    }
}
