/* few_groups, the definition. */
#include "base/convert.h"
#include "kernels/kernel.h"

#include <math.h>

static float load_scale(const uint8_t *scales, int bits, int64_t g) {
    return bits == 32   ? hc_load_f32(scales + 4 * g)
           : bits == 16 ? hc_f16_to_f32(hc_load_u16(scales + 2 * g))
                        : (float)(scales[g / 2] >> (g % 2 * 4) & 15);
}

void hc_few_groups_scalar(const hc_few_floats_args *args) {
    const int n_vectors = args->n_vectors;
    for (int r = 0; r < HC_FEW_ROWS; r++)
        for (int v = 0; v < n_vectors; v++) {
            float acc[16] = {0};
            for (int64_t g = 0; g < args->groups; g++) {
                const float zero = args->zeros[r] ? args->zeros[r][g] : args->zero;
                float p = 0;
                for (int64_t k = 0; k < args->group; k++) {
                    const int64_t i = g * args->group + k;
                    const uint8_t byte = args->codes[r][i * args->bits / 8];
                    const int code = args->bits == 8 ? byte : byte >> (i % 2 * 4) & 15;
                    const float x = args->x[((g / 16 * args->group + k) * n_vectors + v) * 16 + g % 16];
                    p = fmaf(x, (float)(code ^ args->flip) - zero, p);
                }
                acc[g % 16] = fmaf(load_scale(args->scales[r], args->scale_bits, g), p, acc[g % 16]);
            }
            for (int half = 8; half > 0; half /= 2)
                for (int i = 0; i < half; i++)
                    acc[i] = acc[i] + acc[i + half];
            args->out[r * n_vectors + v] = acc[0];
        }
}
