/* few_dots, the definition. */
#include "kernels/kernel.h"

void hc_few_dots_scalar(const hc_few_dots_args *args) {
    const int64_t codes = args->row_bytes * 8 / args->bits;
    for (int64_t s = 0; s < args->segments; s++) {
        const int64_t last = hc_min((s + 1) * args->segment, codes);
        uint32_t sum = 0;
        for (int64_t k = s * args->segment; k < last; k++) {
            const uint8_t byte = args->codes[k * args->bits / 8];
            const int code = (args->bits == 8 ? byte : byte >> (k % 2 * 4) & 15) ^ args->flip;
            const int8_t x = args->x[args->bits == 8 ? k : k / 128 * 128 + k % 2 * 64 + k % 128 / 2];
            sum += (uint32_t)(code * x);
        }
        args->dots[s] = (int32_t)sum;
    }
}
