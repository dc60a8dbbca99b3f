/* gemv_dots: 32-bit lanes hold one word's part of a segment; neighbours are added until 8 segments fill a register.
 * Codes are unpacked once for all lines of x. The sums of vpmaddubsw do not saturate for nibbles, for entries of a
 * table (4 * 63 * 128 in 16 bits) and for bytes below 128 (2 * 127 * 128); other bytes are widened.
 */
#include "kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef enum { NIBBLES, TABLED, NARROW, BYTES } code_kind;
enum { MOST = 8 }; /* registers of codes at once */

/* The register that turns stored codes into bytes: the flip of each code, or the table if TABLED. */
INLINE __m256i load_form(const hc_gemv_dots_args *args, code_kind kind) {
    if (kind == TABLED)
        return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)args->table));
    return _mm256_set1_epi8((char)(kind == NIBBLES ? args->flip * 17 : args->flip));
}

/* Loads `registers` consecutive registers, of which the row has `left` bytes, as parts: two parts each, one if
 * NARROW. */
INLINE void load_parts(const uint8_t *codes, int64_t left, int registers, code_kind kind, __m256i form,
                       __m256i *parts) {
    uint8_t copy[32 * MOST];
    if (left < 32 * registers) {
        memset(copy, 0, sizeof copy);
        if (left > 0)
            memcpy(copy, codes, (size_t)left);
        codes = copy;
    }
#pragma GCC unroll 8
    for (int i = 0; i < registers; i++) {
        const __m256i stored = _mm256_loadu_si256((const __m256i *)(codes + 32 * i)), low = _mm256_set1_epi8(15);
        if (kind == TABLED) {
            parts[2 * i] = _mm256_shuffle_epi8(form, _mm256_and_si256(stored, low));
            parts[2 * i + 1] = _mm256_shuffle_epi8(form, _mm256_and_si256(_mm256_srli_epi16(stored, 4), low));
            continue;
        }
        const __m256i u = _mm256_xor_si256(stored, form);
        parts[2 * i] = kind == NIBBLES ? _mm256_and_si256(u, low)
                       : kind == BYTES ? _mm256_and_si256(u, _mm256_set1_epi16(255))
                                       : u;
        parts[2 * i + 1] = kind == NIBBLES ? _mm256_and_si256(_mm256_srli_epi16(u, 4), low) : _mm256_srli_epi16(u, 8);
    }
}

/* Dot products of the 8 words in `parts` with x of half `half` of their 64-byte block. */
INLINE __m256i dot_register(const __m256i *parts, code_kind kind, const int8_t *x, int half) {
    const __m256i first = _mm256_loadu_si256((const __m256i *)(x + 32 * half)), ones = _mm256_set1_epi16(1);
    if (kind == NARROW)
        return _mm256_madd_epi16(_mm256_maddubs_epi16(parts[0], first), ones);
    if (kind == BYTES) {
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(first, 8), 8), odd = _mm256_srai_epi16(first, 8);
        return _mm256_add_epi32(_mm256_madd_epi16(parts[0], even), _mm256_madd_epi16(parts[1], odd));
    }
    const __m256i second = _mm256_loadu_si256((const __m256i *)(x + 64 + 32 * half));
    const __m256i low = _mm256_maddubs_epi16(parts[0], first), high = _mm256_maddubs_epi16(parts[1], second);
    return _mm256_madd_epi16(_mm256_add_epi16(low, high), ones);
}

/* The sums of 1, 2, 4 or 8 words in as many registers. */
INLINE __m256i add_words(const __m256i *words, int n) {
    if (n == 1)
        return words[0];
    if (n == 2)
        return _mm256_permute4x64_epi64(_mm256_hadd_epi32(words[0], words[1]), 0xd8);
    const __m256i four =
        _mm256_hadd_epi32(_mm256_hadd_epi32(words[0], words[1]), _mm256_hadd_epi32(words[2], words[3]));
    if (n == 4)
        return _mm256_permutevar8x32_epi32(four, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m256i last =
        _mm256_hadd_epi32(_mm256_hadd_epi32(words[4], words[5]), _mm256_hadd_epi32(words[6], words[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(four, last, 0x20), _mm256_permute2x128_si256(four, last, 0x31));
}

INLINE void short_dots(const hc_gemv_dots_args *args, code_kind kind, int words, int n_lines) {
    const int bits = kind <= TABLED ? 4 : 8;
    const __m256i form = load_form(args, kind);
    const int64_t segments = args->segments, x_bytes = args->x_bytes, ld = args->ld;
    const uint8_t *codes = args->codes;
    int64_t left = args->row_bytes;
    int half = 0; /* of a block: a single word is processed in two steps */
    const int8_t *x = args->x;
    for (int64_t s = 0; s < segments; s += 8, codes += 32 * words, left -= 32 * words) {
        __m256i parts[2 * MOST];
        load_parts(codes, left, words, kind, form, parts);
        for (int line = 0; line < n_lines; line++) {
            __m256i sums[MOST];
#pragma GCC unroll 8
            for (int i = 0; i < words; i++)
                sums[i] = dot_register(parts + 2 * i, kind, x + line * x_bytes + i / 2 * (512 / bits),
                                       words == 1 ? half : i % 2);
            _mm256_storeu_si256((__m256i *)(args->dots + line * ld + s), add_words(sums, words));
        }
        half = words == 1 ? !half : 0;
        x += half ? 0 : hc_max(words / 2, 1) * (512 / bits);
    }
}

INLINE int32_t add_lanes(__m256i a) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

INLINE void long_dots(const hc_gemv_dots_args *args, code_kind kind, int64_t pairs, int n_lines) {
    const int bits = kind <= TABLED ? 4 : 8;
    const __m256i form = load_form(args, kind);
    const int64_t x_bytes = args->x_bytes;
    int64_t place = 0;
    for (int64_t s = 0; s < args->segments; s++) {
        __m256i sum[HC_GEMV_LINES], parts[4];
        for (int line = 0; line < n_lines; line++)
            sum[line] = _mm256_setzero_si256();
        for (int64_t i = 0; i < pairs && place < args->row_bytes; i++, place += 64) {
            load_parts(args->codes + place, args->row_bytes - place, 2, kind, form, parts);
#pragma GCC unroll 4
            for (int line = 0; line < n_lines; line++) {
                const int8_t *x = args->x + line * x_bytes + place * (8 / bits);
                sum[line] = _mm256_add_epi32(
                    sum[line], _mm256_add_epi32(dot_register(parts, kind, x, 0), dot_register(parts + 2, kind, x, 1)));
            }
        }
        for (int line = 0; line < n_lines; line++)
            args->dots[line * args->ld + s] = add_lanes(sum[line]);
    }
}

INLINE void of_words(const hc_gemv_dots_args *args, code_kind kind, int n_lines) {
    const int64_t words = args->segment * args->bits / 32;
    switch (words) {
    case 1:
        short_dots(args, kind, 1, n_lines);
        break;
    case 2:
        short_dots(args, kind, 2, n_lines);
        break;
    case 4:
        short_dots(args, kind, 4, n_lines);
        break;
    case 8:
        short_dots(args, kind, 8, n_lines);
        break;
    default:
        long_dots(args, kind, words / 16, n_lines);
    }
}

/* Each case is a function of its own: the time of a compiler grows faster than the length of a function. */
#define CASE(name, kind, n_lines)                                                                                      \
    static __attribute__((noinline)) void name(const hc_gemv_dots_args *args) { of_words(args, kind, n_lines); }
#define CASES(kind)                                                                                                    \
    CASE(one_##kind, kind, 1)                                                                                          \
    CASE(four_##kind, kind, 4)                                                                                         \
    CASE(any_##kind, kind, args->n_lines)                                                                              \
    static void of_##kind(const hc_gemv_dots_args *args) {                                                             \
        args->n_lines == 1 ? one_##kind(args) : args->n_lines == 4 ? four_##kind(args) : any_##kind(args);             \
    }
CASES(TABLED)
CASES(NIBBLES)
CASES(NARROW)
CASES(BYTES)

void hc_gemv_dots_avx2(const hc_gemv_dots_args *args) {
    if (args->bits == 4 && args->table)
        of_TABLED(args);
    else if (args->bits == 4)
        of_NIBBLES(args);
    else if (args->is_narrow)
        of_NARROW(args);
    else
        of_BYTES(args);
}
