/* Copies and checks indices, 4 at a time: hc_csr_copy_neon; kernels/compressed/compressed.h. What is stored is what is
 * checked, since another thread may change the indices; their order is that of two reads. */
#include "kernels/kernel.h"

#include <arm_neon.h>

enum { LANES = 4, PART = 1 << 24 };

int64_t hc_csr_copy_neon(int64_t n, const int32_t *indices, int64_t columns, int32_t *to, bool *inside) {
    const uint32_t most = columns > 0 ? (uint32_t)columns - 1 : 0;
    uint32x4_t largest = vdupq_n_u32(0);
    int64_t falls = 0, t = 0;
    uint32_t beyond = columns > 0 || n == 0 ? 0 : 1;
    if (n > 0) {
        to[0] = indices[0];
        beyond |= (uint32_t)to[0] > most;
        t = 1;
    }
    while (t + LANES <= n) { /* counts of a part fit into 32 bits */
        const int64_t end = n - t < PART ? n : t + PART;
        uint32x4_t steps = vdupq_n_u32(0);
        for (; t + LANES <= end; t += LANES) {
            const int32x4_t found = vld1q_s32(indices + t);
            vst1q_s32(to + t, found);
            largest = vmaxq_u32(largest, vreinterpretq_u32_s32(found));
            steps = vsubq_u32(steps, vcgtq_s32(vld1q_s32(indices + t - 1), found));
        }
        falls += vaddlvq_u32(steps);
    }
    beyond |= vmaxvq_u32(largest) > most;
    for (; t < n; t++) {
        to[t] = indices[t];
        beyond |= (uint32_t)to[t] > most;
        falls += to[t] < to[t - 1];
    }
    *inside = beyond == 0;
    return falls;
}
