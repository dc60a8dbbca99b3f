/* Words of 8 rows are transposed, once for all lines of x, so that a lane is a row and no sums are added across lanes.
 * int16 holds the products of four words of nibbles, and of two words of other codes below 64; bytes are widened.
 * For segments of gemv_scaled without zero points, sums across lanes are faster, also for 8 lines (Zen 4, 2026-11).
 * Included by gemv_scaled_avx2.c, whose codes it loads.
 */
#ifndef HC_GEMV_TURNED_AVX2_H
#define HC_GEMV_TURNED_AVX2_H

enum { WORDS = 8 }; /* of a register */

INLINE __m256i each(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

/* The 32 bytes of 8 rows at `place`: parts of word w at turned[2 w] and turned[2 w + 1]. */
INLINE void turn_codes(const uint8_t *const *codes, int64_t place, int64_t left, code_kind kind, __m256i form,
                       __m256i turned[2 * WORDS]) {
    __m256 words[ROWS];
    for (int row = 0; row < ROWS; row++) {
        uint8_t copy[32] = {0};
        const uint8_t *from = codes[row] + place;
        if (left < 32)
            memcpy(copy, from, (size_t)left);
        words[row] = _mm256_loadu_ps((const float *)(const void *)(left < 32 ? copy : from));
    }
    lanes_transpose(words);
    for (int word = 0; word < WORDS; word++) {
        uint8_t bytes[32];
        _mm256_storeu_ps((float *)(void *)bytes, words[word]);
        load_codes(bytes, 32, kind, form, turned + 2 * word);
    }
}

/* Sums over four words, with x in bytes, for BYTES in int16. `upper`: x of the second parts. */
INLINE __m256i four_words(const __m256i *turned, code_kind kind, const int8_t *x, const int8_t *upper) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[4];
#pragma GCC unroll 4
    for (int w = 0; w < 4; w++) {
        if (kind == BYTES)
            sum[w] = _mm256_add_epi32(_mm256_madd_epi16(turned[2 * w], each(x + 4 * w)),
                                      _mm256_madd_epi16(turned[2 * w + 1], each(upper + 4 * w)));
        else
            sum[w] = _mm256_maddubs_epi16(turned[2 * w], each(x + 4 * w));
        if (kind <= TABLED)
            sum[w] = _mm256_add_epi16(sum[w], _mm256_maddubs_epi16(turned[2 * w + 1], each(upper + 4 * w)));
    }
    if (kind == BYTES)
        return _mm256_add_epi32(_mm256_add_epi32(sum[0], sum[1]), _mm256_add_epi32(sum[2], sum[3]));
    const __m256i low = _mm256_add_epi16(sum[0], sum[1]), high = _mm256_add_epi16(sum[2], sum[3]);
    if (kind == NIBBLES)
        return _mm256_madd_epi16(_mm256_add_epi16(low, high), ones);
    return _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones));
}

/* 32 bytes of x as int16: even positions, then odd ones. */
INLINE void widen(const int8_t *x, int8_t pairs[64]) {
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)x);
    _mm256_storeu_si256((__m256i *)(void *)pairs, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    _mm256_storeu_si256((__m256i *)(void *)(pairs + 32), _mm256_srai_epi16(bytes, 8));
}

/* Zero points of 8 rows and n segments from s on, one register per segment. */
INLINE void load_zeros(const hc_gemv_scaled_args *args, int first, int64_t s, int64_t n, __m256i zeros[STEP]) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
    __m256 rows[ROWS];
    for (int row = 0; row < ROWS; row++)
        rows[row] = _mm256_maskload_ps(args->zeros + hc_min(first + row, args->n_rows - 1) * args->ld_zeros + s, there);
    lanes_transpose(rows);
    for (int i = 0; i < STEP; i++)
        zeros[i] = _mm256_cvtps_epi32(rows[i]);
}

INLINE void keep_sums(__m256i sum, int64_t *to) {
    const __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sum));
    const __m256i high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(sum, 1));
    __m256i *const at = (__m256i *)(void *)to;
    _mm256_storeu_si256(at, _mm256_add_epi64(_mm256_loadu_si256(at), low));
    _mm256_storeu_si256(at + 1, _mm256_add_epi64(_mm256_loadu_si256(at + 1), high));
}

/* Adds the sums of a segment to those of all segments: floats, or integers if folds. */
INLINE void end_segment(const hc_gemv_scaled_args *args, int64_t s, __m256 scale, bool folds, const __m256i *sum,
                        __m256i *acc) {
    for (int line = 0; line < args->n_lines; line++) {
        if (folds) {
            acc[line] = _mm256_add_epi32(acc[line], _mm256_mullo_epi32(sum[line], _mm256_cvtps_epi32(scale)));
            continue;
        }
        const __m256 both = _mm256_mul_ps(_mm256_set1_ps(args->x_scales[line * args->ld_scales + s]), scale);
        acc[line] =
            _mm256_castps_si256(_mm256_fmadd_ps(both, _mm256_cvtepi32_ps(sum[line]), _mm256_castsi256_ps(acc[line])));
    }
}

/* Rows [first, first + 8). folds: scales are integers, and so are the sums, of gemv_turned. */
INLINE void turned_rows(const hc_gemv_scaled_args *args, int first, code_kind kind, bool folds) {
    const __m256i form = kind == TABLED
                             ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)args->table))
                             : _mm256_set1_epi8((char)(kind == NIBBLES ? args->flip * 17 : args->flip));
    const int64_t words = args->words, row_bytes = args->segments * words * 4;
    const int n_lines = args->n_lines;
    const uint8_t *codes[ROWS], *from[ROWS];
    __m256i acc[HC_GEMV_TURNED_LINES], sum[HC_GEMV_TURNED_LINES], turned[2 * WORDS], zeros[STEP];
    __m256 scales[STEP];
    int64_t held = 0;
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = hc_min(first + i, args->n_rows - 1);
        codes[i] = args->codes + row * args->code_stride;
        from[i] = args->scales + row * args->scale_stride;
    }
    for (int line = 0; line < n_lines; line++)
        acc[line] = _mm256_setzero_si256();
    for (int64_t s = 0; s < args->segments; s++) {
        const int64_t n = hc_min(args->segments - s, STEP);
        if (s % STEP == 0) {
            load_scales(args, from, s, n, scales);
            prefetch(args, codes, from, s * words * 4, n * words * 4, s * args->scale_bits / 8);
            if (args->zeros)
                load_zeros(args, first, s, n, zeros);
        }
        for (int line = 0; line < n_lines; line++) {
            const int32_t minus = -args->x_sums[line * args->ld_scales + s];
            sum[line] = args->zeros ? _mm256_mullo_epi32(zeros[s % STEP], _mm256_set1_epi32(minus))
                                    : _mm256_set1_epi32(minus * args->zero);
        }
        for (int64_t word = s * words; word < (s + 1) * words; word += hc_min(words, WORDS)) {
            const int64_t place = word / WORDS * 32, at = kind <= TABLED ? place / 64 * 128 + place % 64 : place;
            const int half = (int)(word % WORDS); /* 0 or 4 */
            if (half == 0)
                turn_codes(codes, place, row_bytes - place, kind, form, turned);
            for (int line = 0; line < n_lines; line++) {
                const int8_t *x = args->x + line * args->x_bytes + at, *upper = x + 64;
                int8_t pairs[64];
                if (kind == BYTES) {
                    widen(x, pairs);
                    x = pairs, upper = pairs + 32;
                }
                const __m256i part = four_words(turned + 2 * half, kind, x + 4 * half, upper + 4 * half);
                sum[line] = _mm256_add_epi32(sum[line], part);
                if (words > 4)
                    sum[line] = _mm256_add_epi32(sum[line], four_words(turned + 8, kind, x + 16, upper + 16));
            }
        }
        end_segment(args, s, scales[s % STEP], folds, sum, acc);
        for (int line = 0; folds && held + 1 == args->most && line < n_lines; line++) {
            keep_sums(acc[line], args->sums + 16 * line + first);
            acc[line] = _mm256_setzero_si256();
        }
        held = held + 1 == args->most ? 0 : held + 1;
    }
    for (int line = 0; line < n_lines; line++) {
        if (folds)
            keep_sums(acc[line], args->sums + 16 * line + first);
        else
            _mm256_storeu_ps(args->out + 16 * line + first, _mm256_castsi256_ps(acc[line]));
    }
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define TURNED(name, kind, folds)                                                                                      \
    static __attribute__((noinline)) void name(const hc_gemv_scaled_args *args) {                                      \
        turned_rows(args, 0, kind, folds);                                                                             \
        turned_rows(args, ROWS, kind, folds);                                                                          \
    }
TURNED(turned_nibbles, NIBBLES, false)
TURNED(turned_bytes, BYTES, false)
TURNED(folded_small, SMALL, true)
TURNED(folded_bytes, BYTES, true)
#undef TURNED

#endif
