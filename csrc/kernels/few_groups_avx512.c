/* few_groups: 16 groups in lanes. A block of 16 groups is turned from [group][word] into [word][group]; then each
 * word's codes, low bits first, are one step of the 16 chains.
 *
 * A nibble becomes a float without a shift where it can: at bit 0 by vpermps (a 16-entry table, which reads just the low
 * 4 bits), at bit 16 by vpermw with the low halves zeroed (a bfloat16 is the upper half of a float), and at bits 4 to 12
 * as mantissa bits of 2^(23 - bit), from which 2^(23 - bit) + zero is subtracted, exactly. These use different ports.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

enum { FIELD = 158 }; /* an exponent field that has every bit of those of 2^23, 2^19, 2^15, 2^11, 2^7 */

typedef struct {
    __m512 table;       /* c by code */
    __m512i table_bf16; /* the same, 32 entries: bit 4 of the index is ignored */
    __m512i low, field; /* words -> (words & low) ^ field, codes flipped under an exponent field */
    __m512i mask[5];    /* by the code's bit / 4: leaves one code and its exponent */
    __m512 offset[5];
} hc_decoder;

#define INLINE static inline __attribute__((always_inline))

INLINE hc_decoder make_decoder(int bits, int flip, float zero) {
    hc_decoder d;
    float values[16];
    uint16_t halves[32];
    for (int i = 0; i < 16; i++)
        values[i] = (float)(i ^ flip) - zero;
    d.table = _mm512_loadu_ps(values);
    for (int i = 0; i < 32; i++)
        halves[i] = (uint16_t)(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(values[i % 16]))) >> 16);
    d.table_bf16 = _mm512_loadu_si512(halves);
    const int flips = bits == 4 ? flip * 0x11111 : flip * 0x101;
    d.low = _mm512_set1_epi32(bits == 4 ? 0xfffff : 0xffff);
    d.field = _mm512_set1_epi32(FIELD << 23 | flips);
    for (int p = 0; p < 5; p++) {
        const int exponent = 150 - 4 * p;
        d.mask[p] = _mm512_set1_epi32(exponent << 23 | ((1 << bits) - 1) << (4 * p));
        d.offset[p] = _mm512_add_ps(_mm512_castsi512_ps(_mm512_set1_epi32(exponent << 23)), _mm512_set1_ps(zero));
    }
    return d;
}

INLINE __m512 by_field(const hc_decoder *d, __m512i words, int p) {
    return _mm512_sub_ps(_mm512_castsi512_ps(_mm512_and_si512(words, d->mask[p])), d->offset[p]);
}

INLINE __m512 by_table(const hc_decoder *d, __m512i words) { return _mm512_permutexvar_ps(words, d->table); }

INLINE __m512 by_upper_table(const hc_decoder *d, __m512i words) {
    return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, words, d->table_bf16));
}

enum { CHUNK = 16 }; /* words of a group that are turned at once */

/* n registers hold [16 groups][n words]; each stage parts even from odd words. */
INLINE void part_words(__m512i *a, int n) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i b[CHUNK];
#pragma GCC unroll 4
    for (int parts = 1; parts < n; parts *= 2) { /* part q holds the words congruent to q modulo parts */
        const int size = n / parts;
#pragma GCC unroll 16
        for (int i = 0; i < n / 2; i++) {
            const int q = i / (size / 2), j = i % (size / 2);
            b[q * (size / 2) + j] = _mm512_permutex2var_epi32(a[q * size + 2 * j], even, a[q * size + 2 * j + 1]);
            b[(q + parts) * (size / 2) + j] =
                _mm512_permutex2var_epi32(a[q * size + 2 * j], odd, a[q * size + 2 * j + 1]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            a[i] = b[i];
    }
}

INLINE void turn_whole(const uint8_t *codes, int words, int64_t groups, __m512i *out) {
    __m512i a[CHUNK];
#pragma GCC unroll 16
    for (int i = 0; i < words; i++) {
        const int64_t valid = groups * words - 16 * i;
        const __mmask16 mask = valid >= 16 ? 0xffff : valid <= 0 ? 0 : (__mmask16)((1u << valid) - 1);
        a[i] = groups >= 16 ? _mm512_loadu_si512(codes + 64 * i) : _mm512_maskz_loadu_epi32(mask, codes + 64 * i);
    }
    part_words(a, words);
#pragma GCC unroll 16
    for (int i = 0; i < words; i++)
        out[i] = a[i];
}

/* Words [first, first + n) of each of the (at most 16) groups: [group][word] -> [word][group]. */
INLINE void turn(const uint8_t *codes, int64_t words, int64_t first, int64_t n, int64_t groups, __m512i *out) {
    switch (words) {
    case 2: turn_whole(codes, 2, groups, out); return;
    case 4: turn_whole(codes, 4, groups, out); return;
    case 8: turn_whole(codes, 8, groups, out); return;
    default: break;
    }
    if (n == CHUNK) {
        for (int i = 0; i < CHUNK; i++)
            out[i] = i < groups ? _mm512_loadu_si512(codes + 4 * (i * words + first)) : _mm512_setzero_si512();
        part_words(out, CHUNK);
        return;
    }
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i places = _mm512_mullo_epi32(_mm512_set1_epi32((int)words), lanes);
    const __mmask16 mask = groups >= 16 ? 0xffff : (__mmask16)((1u << groups) - 1);
    for (int64_t h = 0; h < n; h++)
        out[h] = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, places, codes + 4 * (first + h), 4);
}


/* Words in the forms that their codes are taken from. */
typedef struct {
    __m512i v, v4, v12, low, high; /* shifted right; the low and the high codes under an exponent field */
} hc_words;

INLINE hc_words make_words(const hc_decoder *d, __m512i v, int bits) {
    hc_words w = {.v = v, .low = _mm512_ternarylogic_epi32(v, d->low, d->field, 0x6a)};
    if (bits == 8) {
        w.high = _mm512_xor_si512(_mm512_srli_epi32(v, 16), d->field);
        return w;
    }
    w.v4 = _mm512_srli_epi32(v, 4);
    w.v12 = _mm512_srli_epi32(v, 12);
    w.high = _mm512_xor_si512(w.v12, d->field);
    return w;
}

INLINE __m512 code_f32x16(const hc_decoder *d, const hc_words *w, int bits, int j) {
    if (bits == 8)
        return by_field(d, j < 2 ? w->low : w->high, j % 2 * 2);
    switch (j) {
    case 0: return by_table(d, w->v);
    case 1: return by_table(d, w->v4);
    case 2: return by_field(d, w->low, 2);
    case 3: return by_table(d, w->v12);
    case 4: return by_upper_table(d, w->v);
    case 5: return by_upper_table(d, w->v4);
    case 6: return by_field(d, w->high, 3);
    default: return by_upper_table(d, w->v12);
    }
}

/* p = fmaf(x, c, p) for the codes of n words; returns x behind them. */
INLINE const float *add_words(const hc_decoder *d, __m512i turned[][CHUNK], const __m512 zero[], int64_t n,
                              const float *x, __m512 p[], int bits, int n_rows, int n_vectors, bool zeros) {
    const int n_codes = 32 / bits;
    for (int64_t h = 0; h < n; h++) {
        hc_words words[4];
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++)
            words[r] = make_words(d, turned[r][h], bits);
#pragma GCC unroll 8
        for (int j = 0; j < n_codes; j++) {
            __m512 x_f32x16[4];
#pragma GCC unroll 4
            for (int i = 0; i < n_vectors; i++)
                x_f32x16[i] = _mm512_loadu_ps(x + (j * n_vectors + i) * 16);
#pragma GCC unroll 4
            for (int r = 0; r < n_rows; r++) {
                __m512 c = code_f32x16(d, &words[r], bits, j);
                if (zeros)
                    c = _mm512_sub_ps(c, zero[r]);
#pragma GCC unroll 4
                for (int i = 0; i < n_vectors; i++)
                    p[r * n_vectors + i] = _mm512_fmadd_ps(x_f32x16[i], c, p[r * n_vectors + i]);
            }
        }
        x += n_codes * n_vectors * 16;
    }
    return x;
}

INLINE void few_groups(const hc_few_floats_args *args, int bits, int n_rows, int n_vectors, bool zeros) {
    const hc_decoder d = make_decoder(bits, args->flip, zeros ? 0 : args->zero);
    const int64_t words = args->group * bits / 32, groups = args->groups;
    __m512 acc[8], p[8], zero[4];
    __m512i turned[4][CHUNK];
    const float *x = args->x;
#pragma GCC unroll 8
    for (int i = 0; i < n_rows * n_vectors; i++)
        acc[i] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g += 16) {
        const int64_t left = hc_min(groups - g, 16);
        const __mmask16 mask = (__mmask16)((1u << left) - 1);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows * n_vectors; i++)
            p[i] = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int r = 0; zeros && r < n_rows; r++)
            zero[r] = _mm512_maskz_loadu_ps(mask, args->zeros[r] + g);
        for (int64_t first = 0; first < words; first += CHUNK) {
            const int64_t n = hc_min(words - first, CHUNK);
#pragma GCC unroll 4
            for (int r = 0; r < n_rows; r++) {
                turn(args->codes[r] + g * words * 4, words, first, n, left, turned[r]);
                for (int64_t line = first; line < first + n; line++)
                    _mm_prefetch(args->next[r] + g * words * 4 + line * 64, _MM_HINT_T0);
            }
            x = add_words(&d, turned, zero, n, x, p, bits, n_rows, n_vectors, zeros);
        }
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            const __m512 scale = _mm512_maskz_loadu_ps(mask, args->scales[r] + g);
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++)
                acc[r * n_vectors + v] =
                    _mm512_mask3_fmadd_ps(scale, p[r * n_vectors + v], acc[r * n_vectors + v], mask);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows * n_vectors; i++) {
        const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(acc[i]), _mm512_extractf32x8_ps(acc[i], 1));
        const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 e = _mm_add_ps(b, _mm_movehl_ps(b, b));
        args->out[i] = _mm_cvtss_f32(_mm_add_ss(e, _mm_movehdup_ps(e)));
    }
}

#define SHAPE(rows, vectors)                                                                                        \
    if (args->n_rows == rows && args->n_vectors == vectors) {                                                       \
        if (args->bits == 4)                                                                                        \
            args->zeros[0] ? few_groups(args, 4, rows, vectors, true) : few_groups(args, 4, rows, vectors, false);  \
        else                                                                                                        \
            args->zeros[0] ? few_groups(args, 8, rows, vectors, true) : few_groups(args, 8, rows, vectors, false);  \
        return;                                                                                                     \
    }

void hc_few_groups_avx512(const hc_few_floats_args *args) {
    SHAPE(4, 1)
    SHAPE(2, 1)
    SHAPE(1, 1)
    SHAPE(2, 2)
    SHAPE(2, 4)
}
