/* gemv_rows: 64 accumulators in eight registers, in the order of x. A register of codes holds 8 words; with 8 bits a
 * second one holds the block's other 8, with 16 and 32 bits eight hold a value each.
 */
#include "kernels/gemv/gemv_avx2.h"

/* Code at bit `bit` of each word: mantissa bits of 2^(23 - bit), minus that. */
INLINE __m256 code_f32x8(__m256i words, int bits, int bit) {
    const __m256i exponent = _mm256_set1_epi32((150 - bit) << 23);
    const __m256i field =
        _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(((1 << bits) - 1) << bit)), exponent);
    return _mm256_sub_ps(_mm256_castsi256_ps(field), _mm256_castsi256_ps(exponent));
}

/* Entry by nibble j of each word: vpermps reads three bits of an index; the fourth, as a sign, selects the half. */
INLINE __m256 entry_f32x8(const float *table, __m256i words, int j) {
    const __m256i index = _mm256_srli_epi32(words, 4 * j), upper = _mm256_slli_epi32(words, 28 - 4 * j);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index),
                            _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index), _mm256_castsi256_ps(upper));
}

/* The kinds of codes: two's complement or integers less a zero, entries of a table, floats of 8 and 16 bits, or
 * float32. */
typedef enum { INTEGERS, TABLE, FLOAT8, FLOAT16, BFLOAT16, FLOATS } hc_code_kind;

typedef struct {
    const float *table;
    hc_float8_f32x8 float8;
    __m256i flips;
    __m256 zero;
} hc_row_form;

/* acc[i * n_vectors + v] += x_v * codes for registers [first, first + n) of 64 codes; register i holds positions
 * 8 i .. 8 i + 7. */
INLINE void add_block(const hc_row_form *form, const uint8_t *codes, const float *x, int bits, hc_code_kind kind,
                      int first, int n, int n_vectors, __m256 *acc) {
    __m256i loaded[2], special[2];
    bool has_special[2] = {false, false};
    for (int upper = 0; upper < bits / 4 && bits < 16; upper++) {
        loaded[upper] = _mm256_loadu_si256((const __m256i *)(const void *)(codes + 32 * upper));
        special[upper] = kind == FLOAT8 ? special_bytes(&form->float8, loaded[upper]) : _mm256_setzero_si256();
        has_special[upper] = kind == FLOAT8 && _mm256_movemask_epi8(special[upper]) != 0;
    }
#pragma GCC unroll 8
    for (int i = first; i < first + n; i++) {
        const int upper = bits == 8 ? i % 2 : 0, j = bits == 8 ? i / 2 : i;
        __m256 c;
        if (kind == FLOATS) {
            c = _mm256_loadu_ps((const float *)(const void *)(codes + 32 * i));
        } else if (bits == 16) {
            const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * i));
            c = kind == FLOAT16 ? _mm256_cvtph_ps(halves)
                                : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
        } else if (kind == TABLE) {
            c = entry_f32x8(form->table, loaded[upper], j);
        } else if (kind == FLOAT8) {
            c = float8_f32x8(&form->float8, loaded[upper], j);
            if (has_special[upper]) {
                const __m256i infinity = _mm256_castps_si256(_mm256_set1_ps(INFINITY));
                const __m256i exponent = _mm256_srai_epi32(_mm256_slli_epi32(special[upper], 24 - 8 * j), 31);
                c = _mm256_or_ps(c, _mm256_castsi256_ps(_mm256_and_si256(exponent, infinity)));
            }
        } else {
            const __m256i low = _mm256_xor_si256(loaded[upper], form->flips);
            const __m256i words = j < 16 / bits ? low : _mm256_srli_epi32(low, 16);
            c = _mm256_sub_ps(code_f32x8(words, bits, j * bits % 16), form->zero);
        }
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            acc[(i - first) * n_vectors + v] =
                _mm256_fmadd_ps(_mm256_loadu_ps(x + v * 64 + 8 * i), c, acc[(i - first) * n_vectors + v]);
    }
}

INLINE float fold(__m256 a[8], int bits) {
    __m256 b[4];
    if (bits >= 16) {
        for (int j = 0; j < 4; j++)
            b[j] = _mm256_add_ps(a[j], a[j + 4]);
        const __m256 sum = _mm256_add_ps(_mm256_add_ps(b[0], b[2]), _mm256_add_ps(b[1], b[3]));
        const __m256 half = _mm256_add_ps(sum, _mm256_permute2f128_ps(sum, sum, 1));
        const __m256 quarter = _mm256_add_ps(half, _mm256_permute_ps(half, 0x4e));
        return _mm256_cvtss_f32(_mm256_add_ps(quarter, _mm256_permute_ps(quarter, 0xb1)));
    }
    for (int j = 0; j < 4; j++) /* 8 bits: words 8 to 15; 4 bits: nibbles 4 to 7, which come after the lanes */
        b[j] = bits == 8 ? _mm256_add_ps(a[2 * j], a[2 * j + 1]) : a[j];
    for (int j = 0; j < (bits == 8 ? 4 : 8); j++) {
        __m256 *sum = bits == 8 ? &b[j] : &a[j];
        *sum = _mm256_add_ps(*sum, _mm256_permute2f128_ps(*sum, *sum, 1));
        *sum = _mm256_add_ps(*sum, _mm256_permute_ps(*sum, 0x4e));
        *sum = _mm256_add_ps(*sum, _mm256_permute_ps(*sum, 0xb1));
    }
    for (int j = 0; bits == 4 && j < 4; j++)
        b[j] = _mm256_add_ps(a[j], a[j + 4]);
    return _mm256_cvtss_f32(_mm256_add_ps(_mm256_add_ps(b[0], b[2]), _mm256_add_ps(b[1], b[3])));
}

INLINE hc_row_form row_form(const hc_gemv_floats_args *args, int bits, int r) {
    return (hc_row_form){.table = args->table[r],
                         .float8 = make_float8(args),
                         .flips = _mm256_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip)),
                         .zero = _mm256_set1_ps(args->zeros[r] ? args->zeros[r][0] : args->zero)};
}

/* Stores the sums of the first n of 64 columns, in the order of codes of `bits` bits. */
INLINE void keep_existing(int n, int bits, const __m256 sums[8], __m256 acc[8]) {
    const int step = bits >= 16 ? 1 : bits == 8 ? 4 : 8; /* from lane to lane */
    const __m256i lanes = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(step));
    for (int i = 0; i < 8; i++) {
        const int column = bits >= 16 ? 8 * i : bits == 8 ? i % 2 * 32 + i / 2 : i; /* of lane 0 */
        const __m256i exists = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - column), lanes);
        acc[i] = _mm256_blendv_ps(acc[i], sums[i], _mm256_castsi256_ps(exists));
    }
}

/* The last columns, n of them, fewer than 64; lanes of padded codes keep their sums. */
INLINE void add_tail(const hc_gemv_floats_args *args, int r, int64_t first, const float *x, int bits, hc_code_kind kind,
                     __m256 acc[8]) {
    const hc_row_form form = row_form(args, bits, r);
    const int n = (int)(args->columns - first);
    uint8_t codes[256] = {0};
    __m256 sums[8];
    memcpy(codes, args->codes[r] + first * bits / 8, (size_t)((n * bits + 7) / 8));
    memcpy(sums, acc, sizeof sums);
    add_block(&form, codes, x, bits, kind, 0, 8, 1, sums);
    keep_existing(n, bits, sums, acc);
}

/* Sums [first, first + n) of the eight registers of each row and vector, over whole blocks. Several vectors share a code:
 * fewer registers at a time, so that their sums stay in registers. */
INLINE void add_rows(const hc_gemv_floats_args *args, int bits, hc_code_kind kind, int n_vectors, int first, int n,
                     __m256 sums[HC_GEMV_ROWS * HC_GEMV_VECTORS][8]) {
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const hc_row_form form = row_form(args, bits, r);
        const float *x = args->x;
        __m256 acc[8];
        for (int i = 0; i < 8; i++)
            acc[i] = _mm256_setzero_ps();
        for (int64_t k = 0; k + 64 <= args->columns; k += 64, x += 64 * n_vectors) {
            for (int64_t line = 0; first == 0 && line < 8 * bits; line += 64)
                _mm_prefetch((const char *)args->next[r] + k * bits / 8 + line, _MM_HINT_T1);
            add_block(&form, args->codes[r] + k * bits / 8, x, bits, kind, first, n, n_vectors, acc);
        }
        for (int i = 0; i < n; i++)
            for (int v = 0; v < n_vectors; v++)
                sums[r * n_vectors + v][first + i] = acc[i * n_vectors + v];
    }
}

INLINE void gemv_rows(const hc_gemv_floats_args *args, int bits, hc_code_kind kind, int n_vectors) {
    __m256 sums[HC_GEMV_ROWS * HC_GEMV_VECTORS][8];
    const int64_t whole = args->columns / 64 * 64;
#pragma GCC unroll 4
    for (int first = 0; first < 8; first += 8 / n_vectors)
        add_rows(args, bits, kind, n_vectors, first, 8 / n_vectors, sums);
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++) {
        const int r = i / n_vectors, v = i % n_vectors;
        if (whole < args->columns)
            add_tail(args, r, whole, args->x + whole * n_vectors + v * 64, bits, kind, sums[i]);
        args->out[i] = fold(sums[i], bits);
    }
}

INLINE void of_vectors(const hc_gemv_floats_args *args, int bits, hc_code_kind kind) {
    if (args->n_vectors == 1)
        gemv_rows(args, bits, kind, 1);
    else if (args->n_vectors == 2)
        gemv_rows(args, bits, kind, 2);
    else
        gemv_rows(args, bits, kind, 4);
}

void hc_gemv_rows_avx2(const hc_gemv_floats_args *args) {
    if (args->bits == 32)
        of_vectors(args, 32, FLOATS);
    else if (args->bits == 16)
        args->exponent_bits == 5 ? of_vectors(args, 16, FLOAT16) : of_vectors(args, 16, BFLOAT16);
    else if (args->bits == 8)
        args->exponent_bits ? of_vectors(args, 8, FLOAT8) : of_vectors(args, 8, INTEGERS);
    else
        args->table[0] ? of_vectors(args, 4, TABLE) : of_vectors(args, 4, INTEGERS);
}

INLINE bool is_short(int64_t group) { return group == 16 || group == 32; }

/* Four numbers of groups: the groups of the words of 64 codes of 4 bits, or of register i of codes of 8 bits. */
INLINE __m256 numbers_f32x8(const float *numbers, __m256i lanes) {
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(numbers)), lanes);
}

/* acc[i * n_vectors + v] for registers [first, first + n) of 64 codes. `place`: 4 bits, the lanes of the groups of the
 * words; 8 bits, log2 of the registers of a group, in every lane. */
INLINE void add_values(const uint8_t *codes, const float *scales, const float *minima, __m256i place, int shift,
                       const float *x, int bits, int first, int n, int n_vectors, __m256 *acc) {
    __m256i words = _mm256_setzero_si256(), upper = words;
    __m256 scale = _mm256_setzero_ps(), minimum = scale;
    if (bits == 4) {
        words = _mm256_loadu_si256((const __m256i *)(const void *)codes);
        upper = _mm256_srli_epi32(words, 16);
        scale = numbers_f32x8(scales, place);
        minimum = numbers_f32x8(minima, place);
    }
#pragma GCC unroll 8
    for (int i = first; i < first + n; i++) {
        __m256 c;
        if (bits == 4) {
            c = code_f32x8(i < 4 ? words : upper, 4, i * 4 % 16);
        } else {
            c = _mm256_cvtepi32_ps(
                _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(codes + 8 * i))));
            scale = _mm256_broadcast_ss(scales + (i >> shift));
            minimum = _mm256_broadcast_ss(minima + (i >> shift));
        }
        c = _mm256_fmadd_ps(scale, c, minimum);
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            acc[(i - first) * n_vectors + v] =
                _mm256_fmadd_ps(_mm256_loadu_ps(x + v * 64 + 8 * i), c, acc[(i - first) * n_vectors + v]);
    }
}

/* How the groups of 64 codes follow each other: `step` groups after `columns` columns. */
typedef struct {
    __m256i place;
    int shift;
    int64_t step, columns;
} hc_group_steps;

INLINE hc_group_steps group_steps(int bits, int64_t group) {
    const int log2 = is_short(group) ? __builtin_ctz((unsigned)group) : 6;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (hc_group_steps){.place = bits == 4 ? _mm256_srli_epi32(lanes, log2 - 3) : lanes,
                            .shift = log2 - 3,
                            .step = is_short(group) ? 64 / group : 1,
                            .columns = is_short(group) ? 64 : (group + 63) / 64 * 64};
}

/* As add_rows. */
INLINE void add_rows_of_values(const hc_gemv_floats_args *args, int bits, int n_vectors, int first, int n,
                               __m256 sums[HC_GEMV_ROWS * HC_GEMV_VECTORS][8]) {
    const hc_group_steps steps = group_steps(bits, args->group);
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const float *scales = (const float *)(const void *)args->scales[r], *minima = args->minima[r], *x = args->x;
        __m256 acc[8];
        for (int i = 0; i < 8; i++)
            acc[i] = _mm256_setzero_ps();
        for (int64_t k = 0, next = steps.columns; k + 64 <= args->columns; k += 64, x += 64 * n_vectors) {
            if (first == 0)
                _mm_prefetch((const char *)args->next[r] + k * bits / 8, _MM_HINT_T1);
            if (k == next) {
                next += steps.columns;
                scales += steps.step;
                minima += steps.step;
            }
            add_values(args->codes[r] + k * bits / 8, scales, minima, steps.place, steps.shift, x, bits, first, n,
                       n_vectors, acc);
        }
        for (int i = 0; i < n; i++)
            for (int v = 0; v < n_vectors; v++)
                sums[r * n_vectors + v][first + i] = acc[i * n_vectors + v];
    }
}

INLINE void add_tail_of_values(const hc_gemv_floats_args *args, int r, int64_t first, const float *x, int bits,
                               __m256 acc[8]) {
    const hc_group_steps steps = group_steps(bits, args->group);
    const int n = (int)(args->columns - first);
    const int64_t g = first / steps.columns * steps.step;
    uint8_t codes[64] = {0};
    __m256 sums[8];
    memcpy(codes, args->codes[r] + first * bits / 8, (size_t)((n * bits + 7) / 8));
    memcpy(sums, acc, sizeof sums);
    add_values(codes, (const float *)(const void *)args->scales[r] + g, args->minima[r] + g, steps.place, steps.shift,
               x, bits, 0, 8, 1, sums);
    keep_existing(n, bits == 4 ? 4 : 32, sums, acc);
}

INLINE void gemv_values(const hc_gemv_floats_args *args, int bits, int n_vectors) {
    __m256 sums[HC_GEMV_ROWS * HC_GEMV_VECTORS][8];
    const int64_t whole = args->columns / 64 * 64;
#pragma GCC unroll 4
    for (int first = 0; first < 8; first += 8 / n_vectors)
        add_rows_of_values(args, bits, n_vectors, first, 8 / n_vectors, sums);
    for (int i = 0; i < HC_GEMV_ROWS * n_vectors; i++) {
        if (whole < args->columns)
            add_tail_of_values(args, i / n_vectors, whole, args->x + whole * n_vectors + i % n_vectors * 64, bits,
                               sums[i]);
        args->out[i] = fold(sums[i], bits == 4 ? 4 : 32);
    }
}

INLINE void values_of_vectors(const hc_gemv_floats_args *args, int bits) {
    if (args->n_vectors == 1)
        gemv_values(args, bits, 1);
    else if (args->n_vectors == 2)
        gemv_values(args, bits, 2);
    else
        gemv_values(args, bits, 4);
}

void hc_gemv_values_avx2(const hc_gemv_floats_args *args) {
    args->bits == 4 ? values_of_vectors(args, 4) : values_of_vectors(args, 8);
}
