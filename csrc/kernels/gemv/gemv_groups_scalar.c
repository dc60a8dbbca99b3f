/* gemv_groups, the definition. */
#include "kernels/gemv/gemv_tail.h"

static float load_scale(const uint8_t *scales, int bits, int64_t g) {
    return bits == 32   ? hc_load_f32(scales + 4 * g)
           : bits == 16 ? hc_f16_to_f32(hc_load_u16(scales + 2 * g))
                        : (float)(scales[g / 2] >> (g % 2 * 4) & 15);
}

void hc_gemv_groups_scalar(const hc_gemv_floats_args *args) {
    const int n_vectors = args->n_vectors;
    for (int r = 0; r < HC_GEMV_ROWS; r++)
        for (int v = 0; v < n_vectors; v++) {
            float acc[16] = {0};
            for (int64_t g = 0; g < args->groups; g++) {
                const float scale = load_scale(args->scales[r], args->scale_bits, g);
                acc[g % 16] = fmaf(scale, hc_gemv_chain(args, r, v, g), acc[g % 16]);
            }
            for (int half = 8; half > 0; half /= 2)
                for (int i = 0; i < half; i++)
                    acc[i] = acc[i] + acc[i + half];
            args->out[r * n_vectors + v] = acc[0];
        }
}
