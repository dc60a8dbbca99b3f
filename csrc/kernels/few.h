/* Products of packed weights with few vectors (batch 1 to 8), straight from storage.
 *
 * A stored code is 4 or 8 bits, c = (code ^ flip) - zero: two's complement of b bits has flip 2^(b-1) and zero the
 * same, unsigned codes flip 0 and any zero. Or c = table[code], of 4 bits. Or the code is c itself, a float of 8 or
 * 32 bits. Other widths are unpacked first. No byte behind a row's last is read, and no padded code enters a sum.
 */
#ifndef HC_FEW_H
#define HC_FEW_H

enum { HC_FEW_ROWS = 4, HC_FEW_VECTORS = 4, HC_FEW_LINES = 4 }; /* rows of every call; vectors, lines of one at most */

typedef struct {
    int bits;   /* 4, 8 or 32 */
    int flip;   /* of one code */
    float zero; /* where zeros[0] is NULL */
    float unit; /* few_groups, two's complement of 8 bits: c is this power of two times it; else 1 */
    int exponent_bits, special_bits; /* of floats of 8 bits, as in hc_stored_form; else 0 */
    int n_vectors;                   /* 1, 2 or 4 */
    int64_t columns;
    int64_t group, groups; /* few_groups; a group fills whole 32-bit words */
    const uint8_t *codes[HC_FEW_ROWS];
    const float *table[HC_FEW_ROWS];    /* 4 bits: c by code; NULL: integers */
    int scale_bits;                     /* few_groups: float32 (32), float16 (16) or unsigned integers of 4 bits (4) */
    const uint8_t *scales[HC_FEW_ROWS]; /* (groups), of any alignment */
    const float *zeros[HC_FEW_ROWS];    /* few_groups: (groups), or NULL */
    const uint8_t *next[HC_FEW_ROWS];   /* where the codes of the next call lie, for prefetch */
    const float *x;                     /* in the family's order; places without a column hold +0 */
    float *out;                         /* (4, n_vectors): the folded sums */
} hc_few_floats_args;

/* few_groups:  p = fmaf chain over the codes of a group from +0, acc[g % 16] = fmaf(scale_g, p, acc[g % 16]), g
 * ascending; out = acc folded i with i + 8, + 4, + 2, + 1.
 * x[((g / 16 * group + k) * n_vectors + v) * 16 + g % 16] */
typedef void hc_few_groups_fn(const hc_few_floats_args *args);

/* few_rows:  acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]), k ascending; out = acc folded i with i + 32, + 16, ..., + 1.
 * x[(k / 64 * n_vectors + v) * 64 + place], 32 bits: place = k % 64; 8 bits: k % 4 * 16 + k / 4 % 16; 4 bits:
 * k % 8 * 8 + k / 8 % 8. */
typedef void hc_few_rows_fn(const hc_few_floats_args *args);

/* few_dots:  dots[s] = sum over segment s of x_k * (code_k ^ flip), modulo 2^32, for 1 to 4 lines of x. A segment fills 1, 2, 4, 8 or a
 * multiple of 16 32-bit words; what x has behind the row's last byte is 0.
 * x, in blocks of 64 bytes of codes: 8 bits as they are; 4 bits: the 64 even places, then the 64 odd ones.
 * Budget: |x| <= 128 and segments of at most 65536 keep the true sum inside int32. */
typedef struct {
    int bits, flip;
    int64_t segment, segments, row_bytes;
    const uint8_t *codes;
    int n_lines;
    int64_t x_bytes, ld; /* from line to line of x, of dots */
    const int8_t *x;
    int32_t *dots; /* written up to a multiple of 16 */
} hc_few_dots_args;
typedef void hc_few_dots_fn(const hc_few_dots_args *args);

/* few_sum:  the sum of integers[s] * (dots[s] - corrections[s]) in int64; the factors are integers below 2^24. */
typedef int64_t hc_few_sum_fn(int64_t n, const float *integers, const int32_t *dots, const int32_t *corrections);

/* few_folded:  sums[line] = the sum over the groups of scale_g * sum_k x_k * ((code_k ^ flip) - zero), for codes and
 * unsigned integer scales of 4 bits, and 1, 2 or 4 lines of x. A group fills 2, 4 or 8 32-bit words; x as in few_dots;
 * start[w] = -zero * sum of x over word w.
 * Budget: |x| <= 128 and at most 2^20 codes keep the sum of each word's lane inside int32. */
typedef struct {
    int flip, words;
    int64_t row_bytes;
    const uint8_t *codes, *scales;
    int n_lines;
    int64_t x_bytes; /* from line to line; of start an eighth so many words */
    const int8_t *x;
    const int32_t *start;
    int64_t *sums;
} hc_few_folded_args;
typedef void hc_few_folded_fn(const hc_few_folded_args *args);

/* few_chain:  out[i] = fmaf(float(x_scales[s] * scales[i * ld + s]), float(dot_i(s)), out[i]), s ascending from +0,
 * for 16 rows. dot_i(s) is dots[i * ld + s] - corrections[s] modulo 2^32, or, where corrections is NULL, dots holds
 * float32. ld is a multiple of 16, and so much may be read of every row. */
typedef void hc_few_chain_fn(int64_t n, int64_t ld, const float *x_scales, const float *scales, const void *dots,
                             const int32_t *corrections, float *out);

/* few_scaled:  few_dots and few_chain of up to 16 rows and 1, 2 or 4 lines of x: out[line * 16 + row]. A segment fills 4, 8,
 * 16 or 32 words and has a float16 or float32 as its scale; start[w] = -zero * sum of x over word w. There is no
 * scalar line: those two are it. Budget: |x| <= 128; so a word's sum of codes of 4 bits is within 15360, two int16. */
typedef struct {
    int bits, flip, words, scale_bits;
    int n_rows, n_lines;
    int64_t segments;
    int64_t code_stride, scale_stride; /* from row to row, in bytes */
    const uint8_t *codes, *scales;
    int64_t x_bytes, ld_start, ld_scales; /* from line to line of x, start and x_scales */
    const int8_t *x;
    const int32_t *start;
    const float *x_scales;
    float *out; /* all 16 rows are written */
} hc_few_scaled_args;
typedef void hc_few_scaled_fn(const hc_few_scaled_args *args);

/* few_kept:  sums[v * 64 + k % 64] = fmaf(x[v * ldx + k], c_k, sums[...]), k ascending, for the k whose bits are set in
 * masks (bit k % 64 of word k / 64); codes holds c of these k alone. What lies before `end` of the codes may be read, x
 * whole but, of one vector, for the last word, there what is kept; n_vectors is 1, 2, 4 or 8. Returns where the next codes
 * lie. */
typedef const float *hc_few_kept_fn(int64_t words, const uint64_t *masks, const float *codes, const float *end,
                                    const float *x, int64_t ldx, int n_vectors, float *sums);

/* few_quads:  few_kept of whole words of 2:4, from their metadata; codes and x are read whole. There is no scalar line:
 * few_kept is it. */
typedef void hc_few_quads_fn(int64_t words, const uint8_t *metadata, const float *codes, const float *x, int64_t ldx,
                             int n_vectors, float *sums);

/* few_quads_groups:  few_groups of 2:4 and codes of 4 bits. A group of 16, 32 or 64 codes spans twice so many columns, k
 * of column k % 4 of a quad; x is in that order. `floats` counts whole groups; sums of 16 lanes go to out (4, n_vectors,
 * 16), not folded. There is no scalar line: gather_x32 and few_pairs are it. */
typedef struct {
    hc_few_floats_args floats;
    const uint8_t *metadata[HC_FEW_ROWS];
} hc_few_quads_floats_args;
typedef void hc_few_quads_groups_fn(const hc_few_quads_floats_args *args);

/* few_pairs:  p = fmaf chain over the codes of a group times the x beside them, from +0; sums[g % 16] = fmaf(scales[g], p,
 * sums[g % 16]), g ascending; 16 sums. Up to 8 groups and 8 values more of codes and x may be read. */
typedef void hc_few_pairs_fn(int64_t group, int64_t groups, const float *codes, const float *x, const float *scales,
                             float *sums);

/* few_lanes:  vector v in lane v, for 4 rows of kept codes; code t meets panel[at[t] * 8 + v].
 *
 *   groups  p = fmaf chain over the group's codes from +0; sums[g % 16 * 8 + v] = fmaf(scales[g], p, sums[...])
 *   none    sums[at[t] % 64 * 8 + v] = fmaf(x, c, sums[...]), t ascending
 *
 * Rows have 16 or 64 times 8 sums. Lanes behind n_vectors need not be written. */
enum { HC_FEW_LANES = 8 };
typedef struct {
    int n_vectors;
    int64_t kept, group; /* 0: none; the last may be short */
    const float *codes[HC_FEW_ROWS], *scales[HC_FEW_ROWS];
    const uint16_t *at[HC_FEW_ROWS];
    const float *panel;
    float *sums;
} hc_few_lanes_args;
typedef void hc_few_lanes_fn(const hc_few_lanes_args *args);

/* few_quads_folded:  integers of 2:4; code t of a row meets x_v of column k = 4 * (t / 2) + its position. sums[v] = sum of
 * x_v * ((code ^ flip) - zero), codes of 4 bits, times the unsigned integer of 4 bits of its group, of 2, 4 or 8 32-bit
 * words; x_v + 128 as uint8 at k / 256 * 256 + k % 4 * 64 + k % 256 / 4, 128 without a column.
 *
 * x may be read up to a multiple of 512. Budget: |x| <= 128 and at most 2^18 codes keep every lane inside int32. There
 * is no scalar line: panels give the same integers. */
typedef struct {
    int flip, zero, words;
    int n_vectors;                           /* 1, 2 or 4 */
    int64_t code_bytes, metadata_bytes, ldx; /* ldx: of x, in bytes */
    const uint8_t *codes, *metadata, *scales;
    const void *x;
    int64_t *sums;
} hc_few_quads_args;
typedef void hc_few_quads_integers_fn(const hc_few_quads_args *args);

/* few_quads_panels:  few_quads_folded of 4 rows. x_v + 128 of column k, which is column c of quad t of group g of 16 codes
 * among the 16 of block k / 512, is the uint8 at 512 * (k / 512) + 128 * (t / 4 * 2 + t % 2) + place, where quad
 * n = (g / 2 % 4 * 8 + g / 8 * 4 + g % 2 * 2) + t / 2 % 2 of such a panel of 32 has place 4 * n + c in even panels,
 * n % 16 + 16 * c + 64 * (n / 16) in odd ones. x may be read up to a multiple of 1024, ldx is one.
 * Budget: |x| <= 128, |c| <= 15 and at most 2^16 codes keep every sum inside int32, every group's dot inside int16. */
typedef struct {
    int flip, zero, words;
    int n_vectors;                           /* 1, 2 or 4 */
    int64_t code_bytes, metadata_bytes, ldx; /* ldx: of x, in bytes */
    const uint8_t *codes[HC_FEW_ROWS], *metadata[HC_FEW_ROWS], *scales[HC_FEW_ROWS];
    const uint8_t *x;
    int32_t *sums; /* (n_vectors, 4) */
} hc_few_quads_panels_args;
typedef void hc_few_quads_panels_fn(const hc_few_quads_panels_args *args);

/* Integers that other patterns keep, 4 of every kr columns: code t of a row meets x_v of column
 * t / 4 * kr + (position t | byte t % 4 of base), positions of 1 to 5 or 8 bits.
 *
 *   few_kept_dots    sums[v] = sum of x_v * code, two's complement of 8 bits
 *   few_kept_folded  sum of x_v * ((code ^ flip) - zero), codes of 4 bits, times the unsigned integer of 4 bits of its group,
 *                    of 2, 4 or 8 32-bit words; words 0: all of them times the first
 *
 * x_v is x + 128 as uint8, 128 without a column; it is read up to a multiple of 16 * kr. kr is 8, 16, 32 or 64. VBMI lines
 * need VNNI besides. Budget: |x| <= 128 and at most 2^18 codes keep every lane inside int32. There are no scalar lines:
 * panels give the same integers. */
typedef struct {
    int kr, position_bits, flip, zero, words;
    uint32_t base;
    int n_vectors; /* 1, 2 or 4 */
    int64_t rows, code_bytes, metadata_bytes, scale_bytes;
    int64_t codes_stride, metadata_stride, scales_stride, ldx; /* from row to row, from vector to vector */
    const uint8_t *codes, *metadata, *scales, *x;
    int64_t ld_sums, *sums; /* sums[row * ld_sums + v] */
} hc_few_kept_integers_args;
typedef void hc_few_kept_integers_fn(const hc_few_kept_integers_args *args);

/* few_scales:  out[i] = float32(factor * number i), the numbers being unsigned integers of 4 or 8 bits, float16,
 * or float8 e4m3fn. */
enum { HC_SCALES_U4 = 4, HC_SCALES_U8 = 8, HC_SCALES_F16 = 16, HC_SCALES_E8M0, HC_SCALES_E4M3 };
typedef void hc_few_scales_fn(const uint8_t *stored, int kind, float factor, int64_t n, float *out);

/* few_unpack:  n codes of 1 to 8 bits, in row_bytes bytes, to a byte each, not extended; writes up to 7 bytes more. */
typedef void hc_few_unpack_fn(const uint8_t *stored, int64_t row_bytes, int bits, int64_t n, uint8_t *out);

#endif
