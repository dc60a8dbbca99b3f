/* hc_gemv_groups_avx2: 8 groups in lanes, the two halves of 16 one after the other. An integer code is shifted to the top and
 * back; others are an index into a table of 16, which is two registers. Up to four groups of two rows share a register.
 */
#include "base/lanes/avx2.h"
#include "kernels/gemv/gemv_avx2.h"

enum { CHUNK = 8 }; /* words of a group that are transposed at once */

/* How a code becomes c: two's complement, the same times a power of two, an integer less a zero point, an entry of a
 * table, a float of 8 bits, a float32. */
typedef enum { CODES_SIGNED, CODES_FRACTION, CODES_ZERO, CODES_TABLE, CODES_FLOAT8, CODES_FLOATS } hc_code_kind;

/* Code j of each word of row r. */
INLINE __m256 code_f32x8(const hc_gemv_floats_args *args, const hc_float8_f32x8 *float8, int r, __m256i words,
                         __m256 zero, int bits, int j, hc_code_kind kind) {
    if (kind == CODES_FLOAT8)
        return float8_f32x8(float8, words, j);
    if (kind == CODES_FLOATS)
        return _mm256_castsi256_ps(words);
    if (kind == CODES_TABLE) { /* vpermps reads three bits of an index; the fourth, as a sign, selects the half */
        const __m256i index = _mm256_srli_epi32(words, 4 * j), upper = _mm256_slli_epi32(words, 28 - 4 * j);
        return _mm256_blendv_ps(_mm256_permutevar8x32_ps(_mm256_loadu_ps(args->table[r]), index),
                                _mm256_permutevar8x32_ps(_mm256_loadu_ps(args->table[r] + 8), index),
                                _mm256_castsi256_ps(upper));
    }
    const __m256i top = _mm256_slli_epi32(words, 32 - bits * (j + 1));
    if (kind == CODES_SIGNED)
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 32 - bits));
    if (kind == CODES_FRACTION)
        return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(top, 32 - bits)), _mm256_set1_ps(args->unit));
    return _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(top, 32 - bits)), zero);
}

/* Even (0x88) or odd (0xdd) words of a, then of b. */
#define PART(a, b, which)                                                                                              \
    _mm256_castpd_si256(_mm256_permute4x64_pd(                                                                         \
        _mm256_castps_pd(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), which)), 0xd8))

/* n registers hold [8 groups][n words]; each stage separates even from odd words. */
INLINE void part_words(__m256i *a, int n) {
    __m256i b[CHUNK];
#pragma GCC unroll 4
    for (int parts = 1; parts < n; parts *= 2) { /* part q holds the words congruent to q modulo parts */
        const int size = n / parts, half = size / 2;
#pragma GCC unroll 8
        for (int i = 0; i < n / 2; i++) {
            const int q = i / half, j = i % half;
            b[q * half + j] = PART(a[q * size + 2 * j], a[q * size + 2 * j + 1], 0x88);
            b[(q + parts) * half + j] = PART(a[q * size + 2 * j], a[q * size + 2 * j + 1], 0xdd);
        }
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            a[i] = b[i];
    }
}

/* Words [first, first + n) of at most 8 groups: [group][word] -> [word][group]. Not inlined, since it is the same for
 * all codes. */
static __attribute__((noinline)) void transpose(const uint8_t *codes, int64_t words, int64_t first, int64_t n,
                                                int64_t groups, __m256i *out) {
    if (words == 2 || words == 4 || words == 8) {
        __m256i copy[CHUNK];
        if (groups < 8) {
            memset(copy, 0, sizeof copy);
            memcpy(copy, codes, (size_t)(groups * words * 4));
            codes = (const uint8_t *)copy;
        }
        for (int i = 0; i < words; i++)
            out[i] = _mm256_loadu_si256((const __m256i *)(codes + 32 * i));
        words == 2 ? part_words(out, 2) : words == 4 ? part_words(out, 4) : part_words(out, 8);
        return;
    }
    if (groups == 8 && n == CHUNK) {
        __m256 row[CHUNK];
        for (int i = 0; i < CHUNK; i++)
            row[i] = _mm256_loadu_ps((const float *)(const void *)(codes + 4 * (i * words + first)));
        lanes_transpose(row);
        for (int i = 0; i < CHUNK; i++)
            out[i] = _mm256_castps_si256(row[i]);
        return;
    }
    if (n == CHUNK) {
        __m256 row[CHUNK];
        for (int i = 0; i < CHUNK; i++)
            row[i] = i < groups ? _mm256_loadu_ps((const float *)(const void *)(codes + 4 * (i * words + first)))
                                : _mm256_setzero_ps();
        lanes_transpose(row);
        for (int i = 0; i < CHUNK; i++)
            out[i] = _mm256_castps_si256(row[i]);
        return;
    }
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i places = _mm256_mullo_epi32(_mm256_set1_epi32((int)words), lanes);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)groups), lanes);
    for (int64_t h = 0; h < n; h++)
        out[h] = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(),
                                             (const int *)(const void *)(codes + 4 * (first + h)), places, mask, 4);
}

/* Adds the products of one word of each row in [first, first + n). */
INLINE void add_word(const hc_gemv_floats_args *args, const hc_float8_f32x8 *float8, const __m256i words[],
                     const __m256 zero[], const float *x, __m256 p[], __m256i special[], int first, int n, int bits,
                     int n_vectors, hc_code_kind kind) {
    for (int r = first; r < first + n && kind == CODES_FLOAT8; r++)
        special[r] = _mm256_or_si256(special[r], special_bytes(float8, words[r]));
#pragma GCC unroll 8
    for (int j = 0; j < 32 / bits; j++)
        for (int r = first; r < first + n; r++) {
            const __m256 c = code_f32x8(args, float8, r, words[r], zero[r], bits, j, kind);
            for (int v = 0; v < n_vectors; v++)
                p[r * n_vectors + v] =
                    _mm256_fmadd_ps(_mm256_loadu_ps(x + (j * n_vectors + v) * 16), c, p[r * n_vectors + v]);
        }
}

INLINE __m256 load_lanes(const float *from, int64_t n) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes));
}

/* Scales g .. g + n - 1 as float32, n at most 8. */
INLINE __m256 load_scales(const hc_gemv_floats_args *args, int r, int64_t g, int64_t n) {
    const uint8_t *from = args->scales[r] + g * args->scale_bits / 8;
    if (args->scale_bits == 32)
        return load_lanes((const float *)(const void *)from, n);
    uint8_t bytes[16] = {0};
    if (n < 8) {
        memcpy(bytes, from, (size_t)((n * args->scale_bits + 7) / 8));
        from = bytes;
    }
    if (args->scale_bits == 16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
    int32_t word;
    memcpy(&word, from, sizeof word);
    const __m256i shifted = _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(15)));
}

typedef __m256 hc_sums[HC_GEMV_ROWS * HC_GEMV_VECTORS][2]; /* of 16 lanes */

/* Adds the chains of up to 8 groups from g on, times their scales. */
INLINE void add_groups(const hc_gemv_floats_args *args, int64_t g, int64_t groups, __m256 p[], const __m256i special[],
                       hc_sums acc, int n_vectors, hc_code_kind kind) {
    const int half = (int)(g / 8 % 2);
    /* Codes after the last column meet an x of +0: only a chain that is then 0 or NaN may have been another one. */
    const unsigned tail = (g + groups) * args->group > args->columns ? 1u << (groups - 1) : 0;
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const __m256 scale = load_scales(args, r, g, groups);
        const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256 exists = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)groups), lanes));
        unsigned of_floats = 0;
        if (kind == CODES_FLOAT8) /* a word with no such byte is 0 */
            of_floats = 0xff & ~(unsigned)_mm256_movemask_ps(
                                   _mm256_castsi256_ps(_mm256_cmpeq_epi32(special[r], _mm256_setzero_si256())));
        for (int v = 0; v < n_vectors; v++) {
            const int i = r * n_vectors + v;
            unsigned by_definition = of_floats;
            if (tail)
                by_definition |=
                    tail & (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(p[i], _mm256_setzero_ps(), _CMP_EQ_UQ));
            if (by_definition) {
                float chains[8];
                _mm256_storeu_ps(chains, p[i]);
                for (unsigned left = by_definition; left; left &= left - 1) {
                    const int64_t lane = (int64_t)__builtin_ctz(left);
                    chains[lane] = hc_gemv_chain(args, r, v, g + lane);
                }
                p[i] = _mm256_loadu_ps(chains);
            }
            acc[i][half] = _mm256_blendv_ps(acc[i][half], _mm256_fmadd_ps(scale, p[i], acc[i][half]), exists);
        }
    }
}

/* p of up to 4 groups from `place` on, two rows to a register. `special`: of each row. */
INLINE void share_groups(const hc_gemv_floats_args *args, const hc_float8_f32x8 *float8, int64_t place, int64_t groups,
                         const float *x, const __m256 zero[], __m256 p[], __m256i special[], __m256i flips, int bits,
                         int n_vectors, hc_code_kind kind) {
    enum { PAIRS = HC_GEMV_ROWS / 2 };
    const int64_t words = args->group * bits / 32;
    __m256 sum[PAIRS * HC_GEMV_VECTORS], less[PAIRS];
    __m256i of_pair[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        less[i] = _mm256_insertf128_ps(zero[2 * i], _mm256_castps256_ps128(zero[2 * i + 1]), 1);
        of_pair[i] = _mm256_setzero_si256();
        for (int v = 0; v < n_vectors; v++)
            sum[i * n_vectors + v] = _mm256_setzero_ps();
    }
    for (int64_t first = 0; first < words; first += CHUNK) {
        __m256 word[PAIRS][CHUNK];
        for (int i = 0; i < PAIRS; i++) {
            for (int j = 0; j < CHUNK; j++) {
                const uint8_t *codes = args->codes[2 * i + j / 4] + place + 4 * (j % 4 * words + first);
                word[i][j] = j % 4 < groups ? _mm256_loadu_ps((const float *)(const void *)codes) : _mm256_setzero_ps();
            }
            lanes_transpose(word[i]);
        }
        for (int64_t h = 0; h < CHUNK; h++)
            for (int i = 0; i < PAIRS; i++) {
                const float *from = x + (first + h) * (32 / bits) * n_vectors * 16;
                __m256i codes = _mm256_castps_si256(word[i][h]);
                if (kind == CODES_ZERO)
                    codes = _mm256_xor_si256(codes, flips);
                if (kind == CODES_FLOAT8)
                    of_pair[i] = _mm256_or_si256(of_pair[i], special_bytes(float8, codes));
#pragma GCC unroll 8
                for (int j = 0; j < 32 / bits; j++) {
                    const __m256 c = code_f32x8(args, float8, 2 * i, codes, less[i], bits, j, kind);
                    for (int v = 0; v < n_vectors; v++) {
                        const float *four = from + (j * n_vectors + v) * 16;
                        sum[i * n_vectors + v] = _mm256_fmadd_ps(
                            _mm256_broadcast_ps((const __m128 *)(const void *)four), c, sum[i * n_vectors + v]);
                    }
                }
            }
    }
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        const __m256i bytes = of_pair[r / 2];
        special[r] = _mm256_zextsi128_si256(r % 2 ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes));
        for (int v = 0; v < n_vectors; v++) {
            const __m256 both = sum[r / 2 * n_vectors + v];
            p[r * n_vectors + v] =
                _mm256_zextps128_ps256(r % 2 ? _mm256_extractf128_ps(both, 1) : _mm256_castps256_ps128(both));
        }
    }
}

/* The last up to 4 groups, from g on. Not inlined: whole blocks of groups would have fewer registers. */
INLINE void share_last(const hc_gemv_floats_args *args, int64_t g, hc_sums acc, int bits, int n_vectors,
                       hc_code_kind kind) {
    const hc_float8_f32x8 float8 = make_float8(args);
    const __m256i flips = _mm256_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    const int64_t words = args->group * bits / 32, groups = args->groups - g, place = g * words * 4;
    const float *x = args->x + g / 16 * words * (32 / bits * n_vectors * 16) + g / 8 % 2 * 8;
    __m256 p[HC_GEMV_ROWS * HC_GEMV_VECTORS], zero[HC_GEMV_ROWS];
    __m256i special[HC_GEMV_ROWS];
    for (int r = 0; r < HC_GEMV_ROWS; r++) {
        for (int64_t line = 0; line < groups * words * 4; line += 64)
            _mm_prefetch((const char *)args->next[r] + place + line, _MM_HINT_T1);
        zero[r] = args->zeros[r] ? load_lanes(args->zeros[r] + g, groups) : _mm256_set1_ps(args->zero);
    }
    share_groups(args, &float8, place, groups, x, zero, p, special, flips, bits, n_vectors, kind);
    add_groups(args, g, groups, p, special, acc, n_vectors, kind);
}
static __attribute__((noinline)) void share_kind(const hc_gemv_floats_args *args, int64_t g, hc_sums acc, int bits,
                                                 hc_code_kind kind) {
#define OF(bits, kind)                                                                                                 \
    (args->n_vectors == 1   ? share_last(args, g, acc, bits, 1, kind)                                                  \
     : args->n_vectors == 2 ? share_last(args, g, acc, bits, 2, kind)                                                  \
                            : share_last(args, g, acc, bits, 4, kind))
    kind == CODES_FLOATS     ? OF(32, CODES_FLOATS)
    : kind == CODES_FLOAT8   ? OF(8, CODES_FLOAT8)
    : kind == CODES_FRACTION ? OF(8, CODES_FRACTION)
    : kind == CODES_TABLE    ? OF(4, CODES_TABLE)
    : kind == CODES_SIGNED   ? (bits == 8 ? OF(8, CODES_SIGNED) : OF(4, CODES_SIGNED))
                             : (bits == 8 ? OF(8, CODES_ZERO) : OF(4, CODES_ZERO));
#undef OF
}

/* True if two rows may share a register: they have one table. */
INLINE bool may_share(const hc_gemv_floats_args *args, int64_t groups, int64_t words, hc_code_kind kind) {
    bool is_one = true;
    for (int r = 1; r < HC_GEMV_ROWS && kind == CODES_TABLE; r++)
        is_one = is_one && args->table[r] == args->table[0];
    return groups <= 4 && words % CHUNK == 0 && is_one;
}

INLINE void gemv_groups(const hc_gemv_floats_args *args, int bits, int n_vectors, hc_code_kind kind) {
    const int n_rows = HC_GEMV_ROWS, at_once = n_vectors == 4 ? 2 : 4; /* rows whose sums are in registers */
    const hc_float8_f32x8 float8 = make_float8(args);
    const __m256i flips = _mm256_set1_epi8((char)(bits == 4 ? args->flip * 17 : args->flip));
    const int64_t words = args->group * bits / 32, x_step = 32 / bits * n_vectors * 16;
    const int64_t whole = args->groups - (may_share(args, args->groups % 8, words, kind) ? args->groups % 8 : 0);
    hc_sums acc;
    __m256 p[HC_GEMV_ROWS * HC_GEMV_VECTORS], zero[HC_GEMV_ROWS];
    for (int i = 0; i < n_rows * n_vectors; i++)
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int64_t g = 0; g < whole; g += 8) {
        const int64_t groups = hc_min(whole - g, 8), place = g * words * 4;
        const int half = (int)(g / 8 % 2);
        const float *x = args->x + g / 16 * words * x_step + half * 8;
        __m256i transposed[4][CHUNK], word[4], special[HC_GEMV_ROWS];
        for (int r = 0; r < n_rows; r++) {
            special[r] = _mm256_setzero_si256();
            for (int64_t line = 0; line < words * 32; line += 64)
                _mm_prefetch((const char *)args->next[r] + place + line, _MM_HINT_T1);
            zero[r] = args->zeros[r] ? load_lanes(args->zeros[r] + g, groups) : _mm256_set1_ps(args->zero);
        }
        for (int i = 0; i < n_rows * n_vectors; i++)
            p[i] = _mm256_setzero_ps();
        for (int64_t first = 0; first < words; first += CHUNK) {
            const int64_t n = hc_min(words - first, CHUNK);
            for (int r = 0; r < n_rows; r++)
                transpose(args->codes[r] + place, words, first, n, groups, transposed[r]);
#pragma GCC unroll 2
            for (int row = 0; row < n_rows; row += at_once)
                for (int64_t h = 0; h < n; h++) {
                    for (int r = row; r < row + at_once; r++)
                        word[r] = kind == CODES_ZERO ? _mm256_xor_si256(transposed[r][h], flips) : transposed[r][h];
                    add_word(args, &float8, word, zero, x + (first + h) * x_step, p, special, row, at_once, bits,
                             n_vectors, kind);
                }
        }
        add_groups(args, g, groups, p, special, acc, n_vectors, kind);
    }
    if (whole < args->groups)
        share_kind(args, whole, acc, bits, kind);
    for (int i = 0; i < n_rows * n_vectors; i++) {
        const __m256 a = _mm256_add_ps(acc[i][0], acc[i][1]);
        const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
        args->out[i] = _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
    }
}

#include "kernels/gemv/gemv_groups.h"

HC_GEMV_GROUPS(avx2)
