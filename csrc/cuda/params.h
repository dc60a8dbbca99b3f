/* Parameters of the kernels: one structure each, passed by value, with addresses of the device. cuda/hc_cuda.h says which steps an
 * operation has.
 */
#ifndef HC_CUDA_PARAMS_H
#define HC_CUDA_PARAMS_H

#include "base/row_view.h"

/* A value that the format refuses makes the scales NaN that depend on it, and so the answers that depend on these. A
 * caller that waits also has a word for it, in memory that the host sees: 0, or 2^32 - 1 less the first row with such a
 * value; 1: row 2^32 - 2 or later. */
typedef uint32_t hc_cuda_illegal;

/* A chunk is the part of a row that one thread encodes or decodes: whole groups, whose codes begin and end on bytes. */
typedef struct {
    int32_t columns, groups;        /* of every chunk but the last of a row; groups is 0 where a row has one group */
    int32_t threads;                /* of a block that have a chunk */
    int32_t rows;                   /* of a block, whose chunks are whole rows and that finds their maxima; or 0 */
    int64_t per_row, all;           /* chunks */
    int32_t step[HC_N_COMPONENTS];  /* bytes of a component from chunk to chunk; 0: the chunks of a row share it */
    int32_t last[HC_N_COMPONENTS];  /* bytes of the last chunk of a row */
    int32_t place[HC_N_COMPONENTS]; /* in a thread's own components in shared memory; -1: the format has none */
    int32_t ld, own_bytes;          /* a thread's shared memory: values, then components, each on 4 bytes */
    int32_t shift;                  /* every chunk has 1 << shift columns; 0: not so */
    int32_t flat;                   /* HC_FLAT_*: what lies chunk behind chunk */
} hc_cuda_chunks;

/* Values of x and of y, on 16 bytes, and components of which each chunk has its own, on 4 bytes. */
enum { HC_FLAT_X = 1, HC_FLAT_Y = 2, HC_FLAT_PARTS = 4 };

/* Integers of a format as rows for the matmul: segments of `length` bytes each, zeros behind the values. A segment is `group`
 * logical columns of a run, or the whole row. */
typedef struct {
    int32_t mode; /* hc_int_mode */
    int32_t length;
    int64_t group, per_run; /* columns of a segment, segments of a run */
    int64_t ld;             /* bytes of a row, a multiple of 64 */
    int64_t segments;       /* of a row */
    int32_t n_limbs;        /* 0: no integers are asked for */
    int32_t own_scales;     /* where scales lie in a thread's own shared memory, behind its components */
    int32_t scales_alone;
    int32_t for_nibbles; /* columns in the order of hc_gemm_s4: 8 j + 2 i + h at 16 h + 4 j + i of 32 */
    int8_t *integers;    /* (limbs, rows, ld), the lowest limb first, the highest with a sign */
    uint32_t *
        metadata; /* of a 2:4 pattern: (rows, ld / 32), as mma.sp takes it; integers are then (rows, ld / 2) kept ones */
    float *scales; /* (rows, segments), or (rows) of the mode FOLDED */
} hc_cuda_integer_rows;

/* Bytes of a limb of a chunk in shared memory: an odd number of words, so that threads touch all banks. */
static inline int hc_cuda_integers_ld(int columns) { return (columns + 3) / 4 * 4 | 4; }

/* Kernels of sentences (base/sentence.h) read the record at the address that two options hold. Another is the number of groups of a row,
 * without a sign. */
enum { HC_CUDA_RECORD_GROUPS = 3, HC_CUDA_RECORD_AT = 4 };

/* hc_encode_ and hc_decode_<family>, hc_encode_known_<name>; hc_maximum, which reads the format as one of vsq. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_cuda_chunks chunks;
    hc_row_view x;            /* values that are read; of decode: written */
    hc_row_view y;            /* of encode: written with the rounded values; data NULL: not */
    hc_cuda_integer_rows to;  /* of encode: written with the integers, in place of components */
    hc_components parts;      /* of encode: written without y and integers */
    const float *thresholds;  /* of every group, or NULL */
    uint32_t *row_maxima;     /* bits of the largest magnitude of each row, or NULL; not of chunks with `rows` */
    uint32_t *maximum;        /* likewise of the array, of formats with one coarse scale; or NULL */
    hc_cuda_illegal *illegal; /* or NULL */
} hc_cuda_codec;

/* Values of a chunk in hc_encode_known_<name>, and of its row of shared memory. */
enum { HC_CUDA_KNOWN_COLUMNS = 32, HC_CUDA_KNOWN_LD = 36 };

/* hc_integers_<family>. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_cuda_chunks chunks;
    hc_components parts;
    hc_cuda_integer_rows to;
} hc_cuda_integers;

/* hc_gemm_*: y[i, j] = sum_k x_i[k] w_j[k] (+ bias[j]), both as hc_cuda_integers left them. */
typedef struct {
    int64_t m, n, ld, segments;
    int32_t length, mode;
    int32_t x_limbs, w_limbs;
    int32_t w_warps, spare; /* of few rows: warps of a block with other rows of w */
    const int8_t *x, *w;
    const float *x_scales, *w_scales, *bias;
    char *y;
    int64_t y_row, y_column; /* bytes */
} hc_cuda_gemm;

/* hc_minima_<family>: what is added in each segment of a row of w. */
typedef struct {
    hc_format format;
    hc_geometry geometry; /* of one run */
    hc_components parts;
    int64_t segments, group; /* of a row; columns of a segment */
    float *minima;           /* (rows, segments) */
} hc_cuda_minima;

/* hc_add_minima: y += sum over segments of minimum times the sum of x there, after a gemm without bias. */
typedef struct {
    hc_cuda_gemm gemm;
    const float *minima;
} hc_cuda_add_minima;

/* hc_gemm_24_*: the same, w as hc_integers_<family> leaves a 2:4 pattern; ld is a multiple of 128, length of 64. */
typedef struct {
    hc_cuda_gemm gemm;
    const uint32_t *metadata;
} hc_cuda_gemm_24;

/* hc_gemm_s4_*, hc_gemm_nibbles_* and hc_gemm_90a_nibbles_*: w as it is stored, in codes of 4 bits; folded with or without a scale of 4
 * bits for every 16. */
typedef struct {
    int64_t m, n, ld, segments, w_row_bytes; /* ld: bytes of a row of x, of hc_gemm_s4_* a multiple of 256 */
    int32_t length, w_warps; /* columns of a segment; of few rows: warps of a block with other rows of w */
    const int8_t *x;         /* for_nibbles, of hc_gemm_s4_* */
    const uint8_t *w, *group_scales;
    int64_t w_stride, group_scales_stride, w_scales_stride; /* bytes from row to row */
    const float *x_scales, *bias;
    const char *w_scales; /* a float for each segment of a row */
    char *y;
    int64_t y_row, y_column;
} hc_cuda_gemm_s4;

/* hc_expand_nibbles: codes of 4 bits with their group scales, as they are stored, to rows of ld bytes; ld is a multiple of 16. */
typedef struct {
    int64_t n, ld;
    const uint8_t *w, *group_scales; /* group_scales: of 16 codes each, or NULL */
    int64_t w_stride, group_scales_stride;
    int8_t *to;
} hc_cuda_expand_nibbles;

/* hc_chance_<family>: x rounded to y by chance, with the scales of what x was quantized to. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_cuda_chunks chunks;
    hc_row_view x, y, order; /* order: the index of a value in C order as its offset */
    hc_components parts;
    int32_t n;
    float infinity;      /* what infinity becomes, of formats without scales; or 0 */
    const double *table; /* n > 0: the levels, and infinity behind them */
    double fraction, least, low, high;
    uint64_t seed;
} hc_cuda_chance;

/* hc_table: numbers to memory, up to 256 levels and what comes before them in a record. */
enum { HC_CUDA_LEVELS = 256, HC_CUDA_NUMBERS = HC_CUDA_LEVELS + 32 };
typedef struct {
    double *to, value[HC_CUDA_NUMBERS];
    int64_t n;
} hc_cuda_table;

/* Where the gradient of a rounded value passes, in C order: bytes, 1 if low T <= w <= high T, T the threshold of its group or 1, else 0;
 * or the same as factors, of octav low T / w or high T / w in place of 0; or the slopes of hc_steps, up to 1/2 in magnitude. */
typedef enum { HC_NOTE_NONE = 0, HC_NOTE_BYTES, HC_NOTE_FLOATS, HC_NOTE_OCTAV, HC_NOTE_SLOPES } hc_cuda_note_kind;
typedef struct {
    void *to;
    int32_t kind; /* hc_cuda_note_kind */
    float low, high;
} hc_cuda_note;

typedef struct {
    hc_geometry geometry;
    hc_cuda_chunks chunks;
    hc_row_view x, order;    /* order: as above */
    const float *thresholds; /* (rows, groups), or NULL */
    hc_cuda_note note;
} hc_cuda_note_values; /* hc_note */

/* hc_pass: the n values of g to y in C order, where they pass. */
typedef struct {
    hc_row_view g; /* rows along the last axis */
    int64_t n;
    int32_t kind;    /* hc_cuda_note_kind */
    int32_t is_flat; /* value i of g lies i column strides behind the first */
    const void *note;
    float *y;
} hc_cuda_pass;

/* hc_steps: x rounded to whole numbers of its scales up to `largest`; NaN where the scale is not positive, or the value too large. */
typedef struct {
    const char *data;
    int64_t row, column; /* bytes from row to row, and from group to group */
    int32_t dtype;
    int32_t is_half; /* the format stores them as float16 */
} hc_cuda_scales;
typedef struct {
    hc_geometry geometry;
    hc_cuda_chunks chunks;
    hc_row_view x, order; /* order: as above, also of y and slope */
    hc_cuda_scales scales;
    double largest;
    float *y, *slope;
} hc_cuda_steps;

/* hc_slope_sums: the gradient of the scales, (rows, groups). */
typedef struct {
    hc_geometry geometry;
    hc_row_view g, order;
    double largest;
    const float *slope;
    float *to;
} hc_cuda_slope_sums;

/* hc_thresholds: what replaces the largest magnitude of every group (ops/codec/clip.h). A team of 8 threads takes a group. */
enum { HC_CUDA_CLIP_TEAM = 8 };
typedef struct {
    hc_geometry geometry;
    hc_row_view x;
    int32_t kind, positive;   /* hc_clip_kind; of max(x, 0) in place of |x| */
    double value, inside;     /* a fraction, or a percentile; of octav (kernels/clip/clip.h) */
    float *thresholds;        /* (rows, groups); NaN of a group with a value that is refused */
    hc_cuda_illegal *illegal; /* or NULL */
} hc_cuda_thresholds;

/* hc_prune: of every m values the n with the largest magnitude, and their positions. */
typedef struct {
    hc_geometry geometry;  /* groups of m values */
    hc_cuda_chunks chunks; /* of 8 groups, whose positions are whole bytes */
    hc_row_view x;
    int32_t n, m;
    int64_t row_values, row_bytes;
    float *values;            /* (rows, row_values) */
    uint8_t *metadata;        /* (rows, row_bytes) */
    hc_cuda_illegal *illegal; /* or NULL: the kept values of a block with a NaN are NaN */
} hc_cuda_prune;

/* Threads of a block that reads words, rows of a thread of hc_gemv_<family>_b<bits of a code>_v1, and stages of shared memory of it and of
 * _v8. */
enum { HC_CUDA_GEMV_THREADS = 128, HC_CUDA_GEMV_ROWS = 2 };
#define HC_CUDA_GEMV_STAGES(vectors) ((vectors) == 1 ? 4 : 2)

/* hc_gemv_<family>, hc_gemv_kept_<family> and _b<bits of a code>_v<vectors>: y[v, j] = sum_k x_v[k] c_j[k], codes as they are stored, in the order of few vectors. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_components parts;
    hc_row_view x; /* rows over k at one stride, of float values that float32 holds */
    int64_t vectors;
    int32_t lanes, ld;  /* threads of a row: 16 with groups, else 8; a thread's shared floats */
    int32_t has_16;     /* where words are read: rows lie on multiples of 16 bytes, whole, in one run */
    int32_t scale_bits; /* of group scales that are read as they are stored; or 0 */
    float table[16];    /* and what codes of 4 bits stand for */
    const float *bias;
    char *y;
    int64_t y_row, y_column; /* bytes */
} hc_cuda_gemv;

/* hc_sgemm_*: y[i, j] = one chain of fma over k, ascending; w holds decoded values. hc_sgemm_kept_*: some of them are HC_CUDA_ABSENT, a
 * NaN that no format decodes to, and are skipped. hc_gemm_bf16_*: the sum in the device's order. */
enum { HC_CUDA_ABSENT = 0x7fe5a5a5 };
typedef struct {
    int64_t m, n, k;
    hc_row_view x;  /* rows of floats at one stride */
    const float *w; /* (n, k) */
    const float *bias;
    char *y;
    int64_t y_row, y_column;
    int64_t has_16; /* every four values of a row of x and of w from a multiple of four on lie on 16 bytes */
} hc_cuda_sgemm;

/* hc_floats: rows of k values of any dtype and strides. */
typedef struct {
    int64_t k;
    hc_row_view x;
    float *to;
} hc_cuda_floats;

/* hc_expand: decoded kept values, (rows, kept columns) of the dtype of x, to whole columns of x. */
typedef struct {
    hc_format format;
    hc_geometry geometry;
    hc_row_view x;
    hc_component metadata;
    const void *values;
    float between;     /* values that the pattern drops */
    int32_t has_fours; /* blocks of four columns, in one run of float32, lie on 16 bytes; there are less than 2^32 */
} hc_cuda_expand;

/* hc_check_instructions: words of lane i of a warp at i, i + 32, ...: HC_CUDA_CHECK_IN of them are read, HC_CUDA_CHECK_OUT written.
 * hc_check_90a: 64 and 256 rows of 128 bytes are read, then the places of 64 rows of a 2:4 pattern, (64, 4). Products with the first
 * 128 are written, (64, 128), then with all, then with the first 64; then those of the pattern with the first 64, 128 and 192. Its nonzeros are the first
 * halves of the 64 rows. */
enum { HC_CUDA_CHECK_IN = 17, HC_CUDA_CHECK_OUT = 56, HC_CUDA_CHECK_90A_SHARED = (64 + 256) * 128 + 64 * 64 };
typedef struct {
    const uint32_t *in; /* on 16 bytes */
    uint32_t *out;
} hc_cuda_check;

/* hc_conv_*: y[i, k, p, q] = sum over (r, s, c) of x under the window times filter k, of every group of channels. */
typedef struct {
    int64_t height, width, out_height, out_width, windows; /* of all images */
    int64_t s, taps, stride[2], pad[2], dilation[2];
    int64_t filters, channels, groups; /* of a group; groups of channels */
    const float *bias;
    int32_t relu, spare;
    char *y;
    int64_t y_stride[4]; /* bytes, of (image, filter, p, q) */
} hc_cuda_conv;

/* hc_conv_s8_*, hc_conv_direct_*: both sides as hc_integers_<family> left them; a pixel of a group is whole segments. */
typedef struct {
    hc_cuda_conv conv;
    int64_t ld, segments;          /* of a filter */
    int64_t pixel, pixel_segments; /* bytes and segments of a pixel */
    int64_t image_bytes, image_segments;
    int64_t x_limb_bytes, w_limb_bytes;
    int32_t length, mode;
    int32_t x_limbs, w_limbs;
    int32_t is_small, spare; /* answers have numbers of 32 bits */
    const int8_t *x, *w;
    const float *x_scales, *w_scales;
} hc_cuda_conv_integers;

/* hc_conv_f32, hc_conv_direct_f32: x as it is, w decoded, (filters, taps, channels); one chain of fma. */
typedef struct {
    hc_cuda_conv conv;
    const char *x;
    int64_t x_stride[4]; /* bytes, of (image, channel, h, w) */
    int32_t x_dtype;
    int32_t has_fours;  /* of hc_conv_f32: four columns from a multiple of four on are of one tap */
    int32_t has_16;     /* and floats on 16 bytes */
    int32_t by_filters; /* of hc_conv_direct_f32: neighbouring filters are neighbours in y */
    int32_t is_small;   /* answers have numbers of 32 bits */
    int32_t spare;
    const float *w;
} hc_cuda_conv_floats;

/* hc_norm, hc_softmax, hc_gate, hc_rope: an hc_layer (hc.h), its kind as what it asks of the kernel. Rows of up to HC_CUDA_LAYER_SHARED
 * values are in shared memory. */
enum { HC_CUDA_LAYER_SHARED = (48 << 10) / 4 - 4 };
typedef struct {
    int64_t rows, n, half, repeat, turns;
    const float *x, *weight, *bias;
    float *y;
    float epsilon;
    int32_t is_centered, is_gelu, pairs;
} hc_cuda_layer;

/* hc_attend*: an hc_attention (hc.h) whose keys and values are floats; steps in floats. */
enum {
    HC_CUDA_ATTEND_KEYS = 64,    /* of a tile */
    HC_CUDA_ATTEND_QUERIES = 64, /* of a block of hc_attend_tiles, whose width is up to HC_CUDA_ATTEND_WIDTH */
    HC_CUDA_ATTEND_WIDTH = 128,
    HC_CUDA_ATTEND_COLUMNS = 32, /* of a block of hc_attend_columns, and its stages of values */
    HC_CUDA_ATTEND_STAGES = 5,
    HC_CUDA_ATTEND_LD = 64 + 4 /* exponentials of a tile, their factor and sum */
};
typedef struct {
    int64_t heads, kv_heads, n, m, width;
    const float *q, *k, *v;
    float *out;
    float *scores, *largest; /* of few queries: (batch, heads, n, m), and (batch, heads, n, tiles of keys) */
    int64_t q_step[3], k_step[3], v_step[3], out_step[3];
    int64_t window;
    float scale, cap;
    int32_t causal, spare;
} hc_cuda_attend;

typedef struct {
    void *data;
    int64_t bytes;
} hc_cuda_clear;

#endif
