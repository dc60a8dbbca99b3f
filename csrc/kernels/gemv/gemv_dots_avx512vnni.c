/* gemv_dots: one vpdpbusd per register of codes. 32-bit lanes then hold one word's part of a segment, and neighbours
 * are added until 16 segments fill one register, in order.
 */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { AHEAD = 8192 }; /* bytes prefetched ahead: Zen 4, 2026-11 */

/* Code bytes; bytes after the row's last are not read. */
INLINE __m512i load_codes(const uint8_t *codes, int64_t left) {
    if (left >= 64)
        return _mm512_loadu_si512(codes);
    return left <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi8((1ull << left) - 1, codes);
}

typedef enum { NIBBLES, TABLED, BYTES } code_kind;

/* The register that turns stored codes into bytes: the flip of each code, or the table if TABLED. */
INLINE __m512i load_form(const hc_gemv_dots_args *args, code_kind kind) {
    if (kind == TABLED)
        return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)args->table));
    return _mm512_set1_epi8((char)(kind == NIBBLES ? args->flip * 17 : args->flip));
}

/* A register of codes, one byte each. */
typedef struct {
    __m512i low, high; /* high: of 4 bits alone */
} hc_bytes;

INLINE hc_bytes unpack(__m512i codes, code_kind kind, __m512i form) {
    const __m512i nibbles = _mm512_set1_epi8(15), flipped = _mm512_xor_si512(codes, form);
    if (kind == TABLED)
        return (hc_bytes){_mm512_shuffle_epi8(form, _mm512_and_si512(codes, nibbles)),
                          _mm512_shuffle_epi8(form, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibbles))};
    if (kind == BYTES)
        return (hc_bytes){flipped, _mm512_setzero_si512()};
    return (hc_bytes){_mm512_and_si512(flipped, nibbles), _mm512_and_si512(_mm512_srli_epi16(flipped, 4), nibbles)};
}

INLINE __m512i add_dots(__m512i sum, hc_bytes codes, int bits, const int8_t *x) {
    sum = _mm512_dpbusd_epi32(sum, codes.low, _mm512_loadu_si512(x));
    return bits == 8 ? sum : _mm512_dpbusd_epi32(sum, codes.high, _mm512_loadu_si512(x + 64));
}

/* Sums of neighbours: those of a, then those of b. */
INLINE __m512i add_pairs(__m512i a, __m512i b) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
}

/* 16 segments of `words` words each, words * 64 bytes of codes, times every line. */
INLINE void dot_block(const hc_gemv_dots_args *args, int64_t place, int64_t left, int words, code_kind kind,
                      __m512i form, int32_t *dots) {
    const int bits = kind == BYTES ? 8 : 4;
    const int8_t *x = args->x + place * 8 / bits;
    hc_bytes codes[8];
#pragma GCC unroll 8
    for (int i = 0; i < words; i++)
        codes[i] = unpack(load_codes(args->codes + place + 64 * i, left - 64 * i), kind, form);
    for (int line = 0; line < args->n_lines; line++, x += args->x_bytes, dots += args->ld) {
        __m512i sums[8];
#pragma GCC unroll 8
        for (int i = 0; i < words; i++)
            sums[i] = add_dots(_mm512_setzero_si512(), codes[i], bits, x + i * (512 / bits));
#pragma GCC unroll 3
        for (int n = words; n > 1; n /= 2)
#pragma GCC unroll 4
            for (int i = 0; i < n / 2; i++)
                sums[i] = add_pairs(sums[2 * i], sums[2 * i + 1]);
        _mm512_storeu_si512(dots, sums[0]);
    }
}

INLINE void gemv_dots(const hc_gemv_dots_args *args, code_kind kind, int words) {
    const __m512i form = load_form(args, kind);
    const int64_t block_bytes = 64 * words;
    for (int64_t s = 0, place = 0; s < args->segments; s += 16, place += block_bytes) {
        const int64_t left = args->row_bytes - place;
        for (int i = 0; i < words; i++)
            _mm_prefetch(args->codes + place + AHEAD + 64 * i, _MM_HINT_T1);
        if (left >= block_bytes)
            dot_block(args, place, INT64_MAX, words, kind, form, args->dots + s);
        else
            dot_block(args, place, left, words, kind, form, args->dots + s);
    }
}

/* One segment of whole registers from `place` on. */
INLINE int32_t long_dot(const hc_gemv_dots_args *args, int64_t place, int64_t registers, code_kind kind, __m512i form,
                        const int8_t *x) {
    const int bits = kind == BYTES ? 8 : 4;
    const uint8_t *codes = args->codes + place;
    int64_t i = 0, left = args->row_bytes - place;
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (; i + 4 <= registers && left >= 256; i += 4, codes += 256, x += 2048 / bits, left -= 256)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            _mm_prefetch(codes + AHEAD + 64 * j, _MM_HINT_T1);
            sum[j] =
                add_dots(sum[j], unpack(_mm512_loadu_si512(codes + 64 * j), kind, form), bits, x + j * (512 / bits));
        }
    for (; i < registers && left > 0; i++, codes += 64, x += 512 / bits, left -= 64)
        sum[0] = add_dots(sum[0], unpack(load_codes(codes, left), kind, form), bits, x);
    const __m512i low = _mm512_add_epi32(sum[0], sum[1]), high = _mm512_add_epi32(sum[2], sum[3]);
    return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
}

/* The same without a branch. */
INLINE __m512i load_left(const uint8_t *codes, int64_t left) {
    return _mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, (unsigned)hc_max(hc_min(left, 64), 0)), codes);
}

/* add_dots of a register of which the row has `left` bytes: none of x is read if there are none. */
INLINE __m512i add_left(__m512i sum, hc_bytes codes, int bits, const int8_t *x, int64_t left) {
    const __mmask64 exists = left > 0 ? ~0ull : 0;
    sum = _mm512_dpbusd_epi32(sum, codes.low, _mm512_maskz_loadu_epi8(exists, x));
    return bits == 8 ? sum : _mm512_dpbusd_epi32(sum, codes.high, _mm512_maskz_loadu_epi8(exists, x + 64));
}

/* The next segments of `registers` registers each, up to `leaves`, 8 or 16, times every line: a register of sums per
 * segment, then neighbours are added until one register has them all, as in dot_block. */
INLINE void some_dots(const hc_gemv_dots_args *args, int64_t place, int64_t left, int registers, int leaves,
                      code_kind kind, __m512i form, int32_t *dots) {
    const int bits = kind == BYTES ? 8 : 4;
    const uint8_t *codes = args->codes + place;
    const int8_t *x = args->x + place * 8 / bits;
    for (int line = 0; line < args->n_lines; line++, x += args->x_bytes, dots += args->ld) {
        __m512i sums[16];
#pragma GCC unroll 16
        for (int i = 0; i < leaves; i++) {
            sums[i] = _mm512_setzero_si512();
#pragma GCC unroll 2
            for (int r = i * registers; r < (i + 1) * registers; r++) {
                const int8_t *of_x = x + r * (512 / bits);
                if (left == INT64_MAX)
                    sums[i] = add_dots(sums[i], unpack(_mm512_loadu_si512(codes + 64 * r), kind, form), bits, of_x);
                else
                    sums[i] = add_left(sums[i], unpack(load_left(codes + 64 * r, left - 64 * r), kind, form), bits,
                                       of_x, left - 64 * r);
            }
        }
#pragma GCC unroll 4
        for (int n = leaves; n > 1; n /= 2)
#pragma GCC unroll 8
            for (int i = 0; i < n / 2; i++)
                sums[i] = add_pairs(sums[2 * i], sums[2 * i + 1]);
        if (leaves == 8)
            sums[0] = add_pairs(sums[0], _mm512_setzero_si512());
        _mm512_storeu_si512(dots, sums[0]);
    }
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define SEGMENTS(kind, registers)                                                                                      \
    static __attribute__((noinline)) void kind##_##registers(const hc_gemv_dots_args *args) {                          \
        const __m512i form = load_form(args, kind);                                                                    \
        for (int64_t s = 0, place = 0; s < args->segments; s += 16, place += 1024 * registers) {                       \
            const int64_t n = args->segments - s, left = args->row_bytes - place;                                      \
            for (int64_t i = 0; i < hc_min(n, 16) * registers; i++)                                                    \
                _mm_prefetch(args->codes + place + AHEAD + 64 * i, _MM_HINT_T1);                                       \
            if (left >= 1024 * registers)                                                                              \
                some_dots(args, place, INT64_MAX, registers, 16, kind, form, args->dots + s);                          \
            else if (n > 8)                                                                                            \
                some_dots(args, place, left, registers, 16, kind, form, args->dots + s);                               \
            else                                                                                                       \
                some_dots(args, place, left, registers, 8, kind, form, args->dots + s);                                \
        }                                                                                                              \
    }
SEGMENTS(NIBBLES, 1)
SEGMENTS(NIBBLES, 2)
SEGMENTS(TABLED, 1)
SEGMENTS(TABLED, 2)
SEGMENTS(BYTES, 1)
SEGMENTS(BYTES, 2)
#undef SEGMENTS

INLINE void long_dots(const hc_gemv_dots_args *args, code_kind kind, int64_t registers) {
    if (registers == 1) {
        kind == NIBBLES ? NIBBLES_1(args) : kind == TABLED ? TABLED_1(args) : BYTES_1(args);
        return;
    }
    if (registers == 2) {
        kind == NIBBLES ? NIBBLES_2(args) : kind == TABLED ? TABLED_2(args) : BYTES_2(args);
        return;
    }
    const __m512i form = load_form(args, kind);
    const int bits = kind == BYTES ? 8 : 4;
    for (int64_t s = 0, place = 0; s < args->segments; s++, place += 64 * registers)
        for (int line = 0; line < args->n_lines; line++)
            args->dots[line * args->ld + s] =
                long_dot(args, place, registers, kind, form, args->x + line * args->x_bytes + place * 8 / bits);
}

INLINE void of_words(const hc_gemv_dots_args *args, code_kind kind) {
    const int64_t words = args->segment * args->bits / 32;
    switch (words) {
    case 1:
        gemv_dots(args, kind, 1);
        break;
    case 2:
        gemv_dots(args, kind, 2);
        break;
    case 4:
        gemv_dots(args, kind, 4);
        break;
    case 8:
        gemv_dots(args, kind, 8);
        break;
    default:
        long_dots(args, kind, words / 16);
    }
}

void hc_gemv_dots_avx512vnni(const hc_gemv_dots_args *args) {
    if (args->bits == 4 && args->table)
        of_words(args, TABLED);
    else if (args->bits == 4)
        of_words(args, NIBBLES);
    else
        of_words(args, BYTES);
}
