/* gemv_folded, the definition. */
#include "kernels/kernel.h"

static int64_t line_sum(const hc_gemv_folded_args *args, const int8_t *x, const int32_t *start) {
    int64_t sum = 0;
    for (int64_t word = 0; 4 * word < args->row_bytes; word++) {
        const int64_t group = word / args->words, first = 8 * word;
        int32_t dot = start[word];
        for (int64_t k = first; k < hc_min(first + 8, 2 * args->row_bytes); k++) {
            const int code = (args->codes[k / 2] >> (k % 2 * 4) & 15) ^ args->flip;
            dot += code * x[k / 128 * 128 + k % 2 * 64 + k % 128 / 2];
        }
        sum += (int64_t)(args->scales[group / 2] >> (group % 2 * 4) & 15) * dot;
    }
    return sum;
}

void hc_gemv_folded_scalar(const hc_gemv_folded_args *args) {
    for (int line = 0; line < args->n_lines; line++)
        args->sums[line] = line_sum(args, args->x + line * args->x_bytes, args->start + line * (args->x_bytes / 8));
}
