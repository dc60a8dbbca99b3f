/* gemv_dots, the definition. */
#include "kernels/kernel.h"

static int32_t segment_dot(const hc_gemv_dots_args *args, int64_t s, const int8_t *x) {
    const int64_t last = hc_min((s + 1) * args->segment, args->row_bytes * 8 / args->bits);
    uint32_t sum = 0;
    for (int64_t k = s * args->segment; k < last; k++) {
        const uint8_t byte = args->codes[k * args->bits / 8];
        const int stored = args->bits == 8 ? byte : byte >> (k % 2 * 4) & 15;
        const int code = args->table && args->bits == 4 ? args->table[stored] : stored ^ args->flip;
        sum += (uint32_t)(code * x[args->bits == 8 ? k : k / 128 * 128 + k % 2 * 64 + k % 128 / 2]);
    }
    return (int32_t)sum;
}

void hc_gemv_dots_scalar(const hc_gemv_dots_args *args) {
    for (int line = 0; line < args->n_lines; line++)
        for (int64_t s = 0; s < args->segments; s++)
            args->dots[line * args->ld + s] = segment_dot(args, s, args->x + line * args->x_bytes);
}
