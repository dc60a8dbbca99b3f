/* Rows of codes of 4 bits to bytes, even columns before odd ones in blocks of 128. */
#include "kernels/rows/rows_s4_avx512.h"

INLINE void of_words(const hc_rows_s8_args *args, const int words, int8_t *out, int64_t ld) {
    const int64_t bytes = (args->columns + 1) / 2;
    const vector added = _mm512_set1_epi8(words == PLAIN ? 8 : -128);
    for (int64_t j = 0; j < args->n_w; j++) {
        const uint8_t *w = (const uint8_t *)args->w + j * args->ld_w;
        const uintptr_t next = args->next ? (uintptr_t)args->next + (uintptr_t)(j * args->ld_w) : 0;
        hc_scales scales;
        for (int64_t k = 0; k < bytes; k += 64) {
            vector codes[2];
            if (next) /* maybe behind the last row */
                _mm_prefetch((const char *)(next + (uintptr_t)k), _MM_HINT_T1);
            if (words != PLAIN && k % SPAN == 0)
                expand(args->scales + j * args->ld_scales + k / (8 * words), words, hc_min(bytes - k, SPAN), &scales);
            load_codes(w + k, hc_min(bytes - k, 64), &scales, words ? k % SPAN / (4 * words) : 0, words, codes);
            _mm512_storeu_si512(out + j * ld + 2 * k, _mm512_sub_epi8(codes[0], added));
            _mm512_storeu_si512(out + j * ld + 2 * k + 64, _mm512_sub_epi8(codes[1], added));
        }
    }
}

void hc_bytes_s4_avx512(const hc_rows_s8_args *args, int8_t *out, int64_t ld) {
    switch (args->words) {
    case PLAIN:
        of_words(args, PLAIN, out, ld);
        break;
    case 2:
        of_words(args, 2, out, ld);
        break;
    case 4:
        of_words(args, 4, out, ld);
        break;
    default:
        of_words(args, 8, out, ld);
    }
}
