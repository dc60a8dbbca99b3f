/* few_scales, the definition. */
#include "base/convert.h"
#include "kernels/kernel.h"

void hc_few_scales_scalar(const uint8_t *stored, int bits, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = bits == 16  ? hc_f16_to_f32(hc_load_u16(stored + 2 * i))
                 : bits == 8 ? (float)stored[i]
                             : (float)(stored[i / 2] >> (i % 2 * 4) & 15);
}
