/* Products of packed weights with few vectors (batch 1 to 8), directly from storage. A stored code has 4 or 8 bits, and
 * c = (code ^ flip) - zero: two's complement of b bits has flip = zero = 2^(b-1), unsigned codes have flip 0 and any
 * zero. Or c = table[code] for 4-bit codes. Or the code is c itself, a float of 8, 16 or 32 bits. Other widths are unpacked
 * first. No byte after a row's last byte is read, and no padded code is added to a sum.
 */
#ifndef HC_GEMV_H
#define HC_GEMV_H

enum {
    HC_GEMV_ROWS = 4,
    HC_GEMV_VECTORS = 4,
    HC_GEMV_LINES = 4,
    HC_GEMV_TURNED_LINES = 8,
    HC_GEMV_SCALED_BYTES = 32 << 10
}; /* rows of every call; maximum of vectors and of lines; lines of gemv_scaled if its mr is as many; its scratch */

typedef struct {
    int bits;   /* 4, 8 or 32; gemv_rows: or 16, float16 (exponent_bits 5) or bfloat16 (8) */
    int flip;   /* of one code */
    float zero; /* used if zeros[0] is NULL */
    float unit; /* gemv_groups, two's complement of 8 bits: c is this power of two times the code; otherwise 1 */
    int exponent_bits, special_bits; /* of floats of 8 bits, as in hc_stored_form; otherwise 0 */
    int n_vectors;                   /* 1, 2 or 4 */
    int64_t columns;
    int64_t group, groups; /* gemv_groups; a group is whole 32-bit words */
    const uint8_t *codes[HC_GEMV_ROWS];
    const float *table[HC_GEMV_ROWS];    /* 4 bits: c, indexed by code; NULL: integers */
    int scale_bits;                      /* gemv_groups: float32 (32), float16 (16) or unsigned 4-bit integers (4) */
    const uint8_t *scales[HC_GEMV_ROWS]; /* (groups), of any alignment */
    const float *zeros[HC_GEMV_ROWS];    /* gemv_groups: (groups), or NULL */
    const float *minima[HC_GEMV_ROWS];   /* gemv_values: (groups) */
    const uint8_t *next[HC_GEMV_ROWS];   /* address of the codes of the next call, for prefetch */
    const float *x;                      /* in the family's order; positions without a column hold +0 */
    float *out;                          /* (4, n_vectors): the folded sums */
} hc_gemv_floats_args;

/* gemv_groups:  p = fmaf chain over the codes of a group from +0, acc[g % 16] = fmaf(scale_g, p, acc[g % 16]), g
 * ascending; out = acc folded i with i + 8, + 4, + 2, + 1.
 * x[((g / 16 * group + k) * n_vectors + v) * 16 + g % 16] */
typedef void hc_gemv_groups_fn(const hc_gemv_floats_args *args);

/* gemv_rows:  acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]), k ascending; out = acc folded i with i + 32, + 16, ..., + 1.
 * x[(k / 64 * n_vectors + v) * 64 + place], 16 and 32 bits: place = k % 64; 8 bits: k % 4 * 16 + k / 4 % 16; 4 bits:
 * k % 8 * 8 + k / 8 % 8. */
typedef void hc_gemv_rows_fn(const hc_gemv_floats_args *args);

/* gemv_values: gemv_rows with c = fmaf(scale_g, code, minimum_g), g = k / group, for unsigned codes of 4 or 8 bits and
 * float32 scales. A group has 16, 32 or a multiple of 64 codes, or all; 3 numbers after the last scale and minimum may be
 * read. x: as in gemv_rows, but 8 bits have the order of 32 bits. There is no scalar kernel: gemv_rows of the values c
 * is the definition. */

/* gemv_dots: dots[s] = sum over segment s of x_k * (code_k ^ flip), modulo 2^32, for 1 to 4 lines of x. 4-bit codes may
 * have a table of integers, at most 63, instead of flip. A segment is 1, 2, 4, 8 or a multiple of 16 32-bit words; x is
 * 0 after the row's last byte. x, in blocks of 64 bytes of codes: for 8 bits in order; for 4 bits the 64 even
 * positions, then the 64 odd ones. Budget: |x| <= 128 and segments of at most 65536 keep the true sum inside int32. */
typedef struct {
    int bits, flip;
    const uint8_t *table; /* (16), or NULL */
    bool is_narrow;       /* 8 bits: code ^ flip is below 128 */
    int64_t segment, segments, row_bytes;
    const uint8_t *codes;
    int n_lines;
    int64_t x_bytes, ld; /* from line to line of x, and of dots */
    const int8_t *x;
    int32_t *dots; /* written up to a multiple of 16 */
} hc_gemv_dots_args;
typedef void hc_gemv_dots_fn(const hc_gemv_dots_args *args);

/* gemv_sum:  the sum of integers[s] * (dots[s] - corrections[s]) in int64; the factors are integers below 2^24. */
typedef int64_t hc_gemv_sum_fn(int64_t n, const float *integers, const int32_t *dots, const int32_t *corrections);

/* gemv_folded: sums[line] = the sum over the groups of scale_g * sum_k x_k * ((code_k ^ flip) - zero), for 4-bit codes
 * with unsigned 4-bit integer scales, and 1, 2 or 4 lines of x. A group is 2, 4 or 8 32-bit words; x as in gemv_dots;
 * start[w] = -zero * sum of x over word w. Budget: |x| <= 128 and at most 2^20 codes, 2^13 words for each of 16 lanes,
 * keep every lane inside int32. */
typedef struct {
    int flip, words;
    int64_t row_bytes;
    const uint8_t *codes, *scales;
    int n_lines;
    int64_t x_bytes; /* from line to line; start has an eighth as many words */
    const int8_t *x;
    const int32_t *start;
    int64_t *sums;
} hc_gemv_folded_args;
typedef void hc_gemv_folded_fn(const hc_gemv_folded_args *args);

/* gemv_folded_bytes: sums[line * 16 + row], the same for codes of one byte of up to 16 rows, and integer factors of up to
 * 16 bits, one per group of `words` words of codes, 4, 8 or a multiple of 16. x is in order, and start has a quarter as
 * many words. There is no scalar kernel: gemv_dots and gemv_sum are the definition. Budget: the caller chooses `most`,
 * registers whose products fit the 16 lanes of int32. is_small: the dot products of words, and the factors, fit int16.
 *
 * gemv_folded_packed: the same for packed codes of 2 to 7 bits, row_bytes of each row. `words` counts words of codes that
 * fill bytes. */
typedef struct {
    int bits, flip, words;
    bool is_small;
    int n_rows, n_lines; /* n_lines: 1, 2 or 4 */
    int64_t row_bytes, most;
    int64_t code_stride; /* from row to row, in bytes */
    const uint8_t *codes;
    int64_t ld_factors;
    const int32_t *factors; /* (n_rows, ld_factors); up to 3 values after the last may be read */
    int64_t x_bytes;
    const int8_t *x;
    const int32_t *start;
    int64_t *sums; /* sums of 16 rows may be written */
} hc_gemv_folded_bytes_args;
typedef void hc_gemv_folded_bytes_fn(const hc_gemv_folded_bytes_args *args);

/* gemv_chain: out[i] = fmaf(float(x_scales[s] * scales[i * ld + s]), float(dot_i(s)), out[i]), s ascending from +0, for
 * 16 rows. dot_i(s) is dots[i * ld + s] - corrections[s] modulo 2^32. If corrections is NULL, dots holds float32. ld is
 * a multiple of 16, and ld values of every row may be read. */
typedef void hc_gemv_chain_fn(int64_t n, int64_t ld, const float *x_scales, const float *scales, const void *dots,
                              const int32_t *corrections, float *out);

/* gemv_dense: out[v * 64 + i] = fmaf(x[v * ldx + k], rows[i][k], out[v * 64 + i]), k ascending over n columns from +0,
 * for 16, 32, 48 or 64 rows of float32 of any alignment, of which several may be the same row, and 1, 2 or 4 vectors.
 * is_far: the rows come from memory, and are worth prefetches. */
enum { HC_GEMV_DENSE_ROWS = 64, HC_GEMV_DENSE_UNIT = 16 };
typedef void hc_gemv_dense_fn(int64_t n, int n_rows, const float *const *rows, bool is_far, int n_vectors,
                              const float *x, int64_t ldx, float *out);

/* gemv_minima:  out[line * 16 + i] = fmaf(float(x_scales[line * ld + s] * minima[i * ld + s]), sums[line * ld + s],
 * out[line * 16 + i]), s ascending from +0, for 16 rows and n_lines lines of x. ld as above. */
typedef void hc_gemv_minima_fn(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                               const float *minima, float *out);

/* gemv_minima_halves: gemv_minima with float16 minima, n of them at each of rows[0 .. 15], of any alignment. There is
 * no scalar kernel: gemv_minima of the decoded minima is the definition. */
typedef void hc_gemv_minima_halves_fn(int64_t n, int64_t ld, int64_t n_lines, const float *x_scales, const float *sums,
                                      const uint8_t *const *rows, float *out);

/* gemv_scaled: gemv_dots followed by gemv_chain, for up to 16 rows and 1, 2 or 4 lines of x, or any number up to the
 * kernel's mr: out[line * 16 + row]. A
 * segment has 4, 8, 16 or 32 words and a float16 or float32 scale; start[w] = -zero * sum of x over word w. There is no
 * scalar kernel: gemv_dots and gemv_chain are the definition. Budget: |x| <= 128. So the sum of a word of 4-bit codes,
 * less their zero, is at most 15360, and two such sums fit int16 (so are entries of a table, which are at most 30). The sum of a
 * word of bytes below 64 (is_small) is at most 32256.
 *
 * gemv_scaled_zeros: dots less zeros[row * ld_zeros + s] * x_sums[line * ld_scales + s], for codes without a table; start
 * is 0. The zero points are integers of 0 to 255, and sums stay inside int32.
 *
 * gemv_turned: sums[line * 16 + row], in int64, of dots times scales that are integers, as float32; without x_scales and
 * zeros. Bytes. Budget: `most` segments of products fit int32. gemv_turned_packed: the same for packed codes.
 *
 * gemv_scaled_packed: gemv_scaled for packed codes of 2 to 7 bits. `words` counts the words that the codes fill as
 * bytes, and x is in the order of bytes. There is no scalar kernel: gemv_unpack followed by gemv_scaled is the
 * definition. */
typedef struct {
    int bits, flip, words, scale_bits;
    const uint8_t *table; /* as in gemv_dots; for gemv_scaled_packed it is NULL, and is_small is false */
    bool is_small;
    int n_rows, n_lines;
    int64_t segments;
    int64_t code_stride, scale_stride; /* from row to row, in bytes */
    const uint8_t *codes, *scales;
    int64_t x_bytes, ld_start, ld_scales; /* from line to line of x, start and x_scales */
    const int8_t *x;
    const int32_t *start;
    const float *x_scales;
    const float
        *zeros; /* (n_rows, ld_zeros), gemv_scaled_zeros alone; of each row 16 zeros from any s on may be read */
    int64_t ld_zeros;
    const int32_t *x_sums; /* of segments; up to a multiple of 8 may be read */
    int zero;              /* of gemv_scaled: of a code after the flip */
    float *out;            /* all 16 rows are written */
    void *scratch;         /* HC_GEMV_SCALED_BYTES, aligned to a cache line */
    int64_t most, *sums;   /* of gemv_turned */
} hc_gemv_scaled_args;
typedef void hc_gemv_scaled_fn(const hc_gemv_scaled_args *args);

/* gemv_scales: out[i] = float32(factor * number i). The numbers are unsigned integers of 4 or 8 bits, float16, E8M0 or
 * float8 e4m3fn. */
enum { HC_SCALES_U4 = 4, HC_SCALES_U8 = 8, HC_SCALES_F16 = 16, HC_SCALES_E8M0, HC_SCALES_E4M3 };
typedef void hc_gemv_scales_fn(const uint8_t *stored, int kind, float factor, int64_t n, float *out);

/* gemv_unpack:  n codes of 1 to 8 bits, in row_bytes bytes, to one byte each, not sign-extended; writes up to 7 bytes
 * more. */
typedef void hc_gemv_unpack_fn(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out);

/* gemv_nibbles:  n codes of 1 to 3 bits, in row_bytes bytes, to 4 bits each, two to a byte; writes up to 7 codes more. */
typedef void hc_gemv_nibbles_fn(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out);

#endif
