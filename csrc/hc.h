/* heterocompute: the public C API (hc_layers.h: layers between products, whole layers of language models; hc_emulate.h:
 * matmuls as given hardware accumulates them).
 *
 * Arrays come as views (pointer, dtype, shape, byte strides) or as packed arrays (components + format + shape +
 * reduction axes). Every function checks its arguments (ops/check.c) and returns a status. If the status is not HC_OK,
 * `error` contains a message and the output is unspecified. All functions are reentrant. None keeps a pointer.
 */
#ifndef HC_H
#define HC_H

#include "base/compressed.h"
#include "base/cpu.h"
#include "base/float_env.h" /* callers enter it around a call: subnormals are kept, rounding is to nearest */
#include "base/form.h"
#include "base/packed.h"
#include "base/sentence.h"

typedef struct {
    void *data;
    hc_dtype dtype;
    int ndim;
    int64_t shape[HC_MAX_DIMS];
    int64_t strides[HC_MAX_DIMS]; /* bytes */
    int device;                   /* device of the data: HC_HOST, except for operands of calls with routes */
} hc_view;

/* A packed array. Rows are in C order of the axes that are not reduction axes. The components of a view of rows may
 * have any row stride. */
typedef struct {
    hc_format format;
    int ndim;
    int64_t shape[HC_MAX_DIMS];
    int n_axes;
    int axes[HC_MAX_DIMS]; /* not negative, in the order of the columns of a row */
    hc_components components;
    const struct hc_prepacked *prepacked; /* panels that hc_prepack packed from this array, or NULL */
} hc_packed;

/* The integers of a packed array as the panels of one kernel, so that matmuls of large batches do not decode. A matmul
 * uses the panels if they match (integers on both sides, the same kernel chosen, all of k in one KC block), otherwise
 * the array itself. The results are bitwise identical. *prepacked is NULL if the format has no integers. */
typedef struct hc_prepacked hc_prepacked;
hc_status hc_prepack(const hc_run *run, const hc_packed *packed, hc_prepacked **prepacked, hc_error *error);
int64_t hc_prepacked_bytes(const hc_prepacked *prepacked);
void hc_prepacked_free(hc_prepacked *prepacked);

/* How scales are found: absmax, a fraction of it, a percentile of |x|, or OCTAV (formats.md, Clipping). */
typedef enum { HC_CLIP_ABSMAX = 0, HC_CLIP_FRACTION, HC_CLIP_PERCENTILE, HC_CLIP_OCTAV } hc_clip_kind;
typedef struct {
    hc_clip_kind kind;
    double value;
} hc_clip;

/* Either side of a matmul: a view of float values or a packed array. One of the two pointers is NULL. */
typedef struct {
    const hc_view *dense;
    const hc_packed *packed;
} hc_operand;

/* Formats of this build, by number; false past the end. */
bool hc_family(int32_t number, const char **name, const char **description);
bool hc_kernel_line(int number, const char **family, const char **isa, uint32_t *needs);

/* Formats. */
hc_status hc_format_check(const hc_format *format, hc_error *error);
/* Makes a format that a sentence defines known; its number is option[0] of the family "own". The same record has the same number. */
hc_status hc_define(const hc_sentence *own, int32_t *number, hc_error *error);
/* A valid format as data, without its pattern, and the values of its codes of up to 8 bits if these are fixed. */
enum { HC_MAX_CODES = 256 };
hc_stored_form hc_format_form(const hc_format *format, int *n_levels, double levels[HC_MAX_CODES]);
/* Components of an array of this shape: present, dtype and shape. The shapes of per_row components begin with
 * `rows`. */
hc_status hc_layout(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                    hc_geometry *geometry, hc_component_layout layout[HC_N_COMPONENTS], hc_error *error);

/* Keeps the n values with the largest scores of every m along the last axis, the lower index if scores are equal.
 * scores: of x's shape, or NULL for |x|. Scores and values are compared as float32. values: float32 (rows, runs *
 * ceil(length / m) * n), float64 is rounded once and saturates. metadata: (rows, bytes), see sparsity/nm.h. The last
 * block of a run is padded with zeros, which are the last to be kept. (hc_quantize with a format with a pattern rounds
 * the nonzeros of x directly.) */
hc_status hc_prune_sizes(const hc_view *x, int n, int m, int n_axes, const int *axes, int64_t *values, int64_t *bytes,
                         hc_error *error);
hc_status hc_prune(const hc_run *run, const hc_view *x, const hc_view *scores, int n, int m, int n_axes,
                   const int *axes, float *values, uint8_t *metadata, hc_error *error);

/* x -> packed->components, whose memory has the layout of hc_layout. Error messages begin with `name` ("quantize"). */
hc_status hc_quantize(const hc_run *run, const hc_view *x, const hc_clip *clip, hc_packed *packed, hc_error *error);
/* hc_quantize with weights for the squared errors that a learned codebook or a search minimizes. importance: x's shape,
 * finite values that are not negative; NULL: all are 1. */
hc_status hc_quantize_weighted(const hc_run *run, const hc_view *x, const hc_clip *clip, const hc_view *importance,
                               hc_packed *packed, hc_error *error);
/* out: float32 or float64 of the packed shape, any strides. */
hc_status hc_dequantize(const hc_run *run, const hc_packed *packed, const hc_view *out, hc_error *error);
/* Dequantizes indices [first, first + count) of axis 0 into an out of that shape. first is a multiple of hc_slab_step.
 * So is count, unless first + count is the end. */
hc_status hc_dequantize_slab(const hc_run *run, const hc_packed *packed, int64_t first, int64_t count,
                             const hc_view *out, hc_error *error);
int64_t hc_slab_step(const hc_packed *packed);
/* Marks the values at which a gradient passes a rounding: low * T <= x <= high * T, where T is the group's threshold of
 * clip, or 1. bits: (rows, ceil(padded / 8)); bit i % 8 of byte i / 8 of a row is column i of the format's rows.
 * factor: NULL, or float32 of x's shape, 1 for marked values and (bound / x) for all others. */
typedef struct {
    float low, high;
    uint8_t *bits;
    const hc_view *factor;
} hc_inside;
hc_status hc_inside_bytes(const hc_format *format, int ndim, const int64_t *shape, int n_axes, const int *axes,
                          int64_t *rows, int64_t *bytes, hc_error *error);
/* Quantizes and dequantizes block by block. out: float32 of x's shape, any strides; it may be x itself. inside: filled
 * in the same pass, or NULL. Formats with a pattern are not supported. */
hc_status hc_fake_quantize(const hc_run *run, const hc_view *x, const hc_format *format, int n_axes, const int *axes,
                           const hc_clip *clip, const hc_inside *inside, const hc_view *out, hc_error *error);
/* out = g if the value's bit is set, otherwise 0. Both: float32 of the rounded array's shape, any strides. */
hc_status hc_keep_inside(const hc_run *run, const hc_view *g, const hc_format *format, int n_axes, const int *axes,
                         const uint8_t *bits, const hc_view *out, hc_error *error);
/* The levels of a format before scaling. With n > 0: a table of n ascending levels. With n = 0: from low to high,
 * 2^(max(exponent, e) - m) apart in the binade of |t|, fraction = 2^m, least = 2^e (integers: m = e). With zero points
 * low is 0. */
typedef struct {
    int n;
    const double *table;
    double fraction, least, low, high;
} hc_levels;
/* out = one of the two levels next to x, with the scales of `packed`, to which x was quantized. Formats with a pattern
 * are not supported. The random number of an element depends on `seed` and its index in C order
 * (kernels/training/training.h). */
hc_status hc_round_by_chance(const hc_run *run, const hc_view *x, const hc_packed *packed, const hc_levels *levels,
                             uint64_t seed, const hc_view *out, hc_error *error);
/* Packed codes of 1 to 8 bits in memory (ops/stored/codes.c); code i of a row of memory is bits i * b to i * b + b - 1.
 *
 *   ROWS          a row of the matrix is a row of memory, row_bytes apart
 *   HIGH_FIRST    the same of 4 bits, the even code in the high half of a byte
 *   WORD_COLUMNS  word w of 4 bytes of row r is word w * rows + r: GPTQ
 *   TURNED        a column of the matrix is a row of memory
 *   TURNED_AWQ    the same of 4 bits, item i of eight is code 0 2 4 6 1 3 5 7 [i]; rows are a multiple of 8 */
typedef enum {
    HC_CODES_ROWS,
    HC_CODES_HIGH_FIRST,
    HC_CODES_WORD_COLUMNS,
    HC_CODES_TURNED,
    HC_CODES_TURNED_AWQ,
    HC_N_CODES_KINDS
} hc_codes_kind;
typedef struct {
    uint8_t *data;
    int bits;
    hc_codes_kind kind;
    int64_t row_bytes; /* of a row of memory; bytes that a row does not need are written as 0 */
} hc_code_matrix;
/* to = from ^ flip, a (rows, columns) matrix. If one side is turned, the other is ROWS. If `to` has fewer bits, codes
 * keep their low bits. */
void hc_move_codes(const hc_run *run, int64_t rows, int64_t columns, uint8_t flip, const hc_code_matrix *from,
                   const hc_code_matrix *to);

/* Rows of packed codes: runs of `padded` codes each, of which those from `length` on are padding (ops/stored/faults.c).
 * unused: a code that never occurs, or -1. padding: the code of padding, or -1 for any. zero_points: NULL, or packed
 * like the codes; padding then has the zero point of the last of each run's `groups`. */
typedef struct {
    const uint8_t *codes, *zero_points;
    int64_t rows, row_bytes, zero_bytes;
    int64_t runs, length, padded, groups;
    int bits;
    int64_t unused, padding;
} hc_code_rules;
typedef enum { HC_CODES_SOUND, HC_CODES_UNUSED, HC_CODES_PADDING } hc_code_fault;
hc_code_fault hc_find_fault(const hc_run *run, const hc_code_rules *rules);

/* Converts blocks of GGUF to the components of an array and back. Rows consist of whole blocks (formats/ggml/blocks.h).
 * The name is that of ggml in lower case. Components have the sizes of the blocks. */
hc_status hc_read_blocks(const hc_run *run, const char *name, const uint8_t *blocks, const hc_packed *packed,
                         hc_error *error);
hc_status hc_write_blocks(const hc_run *run, const char *name, const hc_packed *packed, uint8_t *blocks,
                          hc_error *error);
/* Bytes of a row of blocks for `values` values; 0 if the type is unknown or `values` does not fill whole blocks. */
int64_t hc_blocks_bytes(const char *name, int64_t values);
/* Sums over all values, float64, index ascending in blocks: of x^2, (x - y)^2, x*y, y^2, and max |x - y|. */
typedef struct {
    double xx, ee, xy, yy, max_abs;
} hc_error_sums;
/* The state after some of the values; all 0 before the first. The block has the sums of a block that is not full
 * yet. */
typedef struct {
    hc_error_sums sums, block;
    int64_t values;
} hc_error_state;
hc_status hc_compare(const hc_run *run, const hc_view *x, const hc_view *y, hc_error_state *state, hc_error *error);
hc_error_sums hc_compared(const hc_error_state *state);

/* out[..., i, j] = sum_k a[..., i, k] * b[..., k, j]  with the leading dimensions of numpy.matmul, ndim >= 2 each (the
 * binding adds and removes the axis of a vector). bias: (n), added last, or NULL. activations: the format in which the
 * dense operand is quantized block by block, or NULL. Working memory: under 64 MiB for every size. */
hc_status hc_matmul(const hc_run *run, const hc_operand *a, const hc_operand *b, const hc_format *activations,
                    const hc_view *bias, const hc_view *out, hc_error *error);

/* A call uses a route (ops/route/routes.def): the kernels of this library, or a BLAS for dense float32 operands if it
 * is faster or the run asks for it. With `route` = number + 1 the run uses that route in every call that it does not
 * refuse. NULL past the end. */
const char *hc_route_name(int number);

/* The functions of a BLAS, which the binding found in a library that stays open. set_threads and get_threads can be
 * NULL. core: the processor of its kernels, or NULL. */
typedef void hc_sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);
typedef void hc_sgemv_fn(int order, int trans, int m, int n, float alpha, const float *a, int lda, const float *x,
                         int incx, float beta, float *y, int incy);
typedef struct {
    hc_sgemm_fn *sgemm;
    hc_sgemv_fn *sgemv;
    void (*set_threads)(int);
    int (*get_threads)(void);
    const char *core;
} hc_blas;
/* Sets the BLAS of the process; NULL: there is none. Only the first call has an effect. */
void hc_blas_use(const hc_blas *blas);
bool hc_blas_looked(void); /* whether hc_blas_use was called */
/* Speed of the BLAS relative to the kernels of this library for these instruction sets. */
typedef enum { HC_BLAS_NONE = 0, HC_BLAS_EQUAL, HC_BLAS_SLOWER } hc_blas_speed;
hc_blas_speed hc_blas_speed_of(uint32_t isa);

/* The matmul of a device, which the binding sets once it opened the driver: it launches, and waits for nothing. `run` is
 * that of the call. b is packed; a, out and bias are on the device of the run. Sizes have been checked. */
typedef hc_status hc_device_matmul_fn(const hc_run *run, const hc_operand *a, const hc_packed *b,
                                      const hc_format *activations, const hc_view *bias, const hc_view *out,
                                      hc_error *error);
void hc_cuda_use(hc_device_matmul_fn *matmul);

/* The shape of the result of hc_matmul. The error message begins with `name`. */
hc_status hc_matmul_shape(const char *name, int a_ndim, const int64_t *a, int b_ndim, const int64_t *b, int *ndim,
                          int64_t shape[HC_MAX_DIMS], hc_error *error);

/* out[..., j] = sum_k x[..., k] * w[j, k] over the stored values of w. x: a view, or a packed array whose rows over k
 * are those of out. One vector: acc[t % 8] = fmaf(values[t], x_k, acc[t % 8]), t counted in the row, folded i with i +
 * 4, + 2, + 1; more: one fmaf chain. If an index is below the preceding index of its row, *ascending is set to false
 * and nothing is computed. Invalid starts or indices: HC_VALUE. Working memory: under 64 MiB. */
hc_status hc_csr_matmul(const hc_run *run, const hc_operand *x, const hc_csr *w, const hc_view *out, bool *ascending,
                        hc_error *error);
/* starts (columns + 1), indices and values (stored) of the transposed matrix. Its columns ascend; equal columns keep
 * their order. */
hc_status hc_csr_transpose(const hc_csr *csr, int64_t *starts, int32_t *indices, float *values, hc_error *error);

/* EIE's storage. Codebook of n finite values other than 0: [0] is 0, the rest is by optimal k-means. `values` is sorted
 * in place. Encoding: hc_eie_count_entries fills pointers (elements, columns + 1), hc_eie_encode the entries, with
 * eie->pointers of the first; w: (rows, columns), finite. hc_eie_check: HC_VALUE if components do not fit each other.
 * All functions below need components that it accepted. */
hc_status hc_eie_codebook(int64_t n, float *values, float codebook[HC_EIE_CODES], hc_error *error);
hc_status hc_eie_count_entries(const hc_run *run, const float *w, int64_t rows, int64_t columns, int64_t elements,
                               uint32_t *pointers, int64_t *n_entries, hc_error *error);
hc_status hc_eie_encode(const hc_run *run, const float *w, const hc_eie *eie, uint8_t *entries, hc_error *error);
hc_status hc_eie_check(const hc_eie *eie, hc_error *error);
void hc_eie_decode(const hc_run *run, const hc_eie *eie, float *dense);
/* As compressed sparse rows: starts (rows + 1), then indices and values (starts[rows]). Padding entries are left
 * out. */
void hc_eie_rows_begin(const hc_run *run, const hc_eie *eie, int64_t *starts);
void hc_eie_expand(const hc_run *run, const hc_eie *eie, int64_t *starts, int32_t *indices, float *values);
/* out (vectors, rows): fmaf chains from +0 over the entries of a row whose x (vectors, columns) is not 0, columns
 * ascending. hc_eie_check accepted the storage. */
hc_status hc_eie_multiply(const hc_run *run, const hc_eie *eie, int64_t vectors, const float *x, float *out,
                          hc_error *error);
/* The same bits, faster for few vectors. rows: what hc_eie_expand made of the storage. */
hc_status hc_eie_multiply_rows(const hc_run *run, const hc_eie *eie, const hc_csr *rows, int64_t vectors,
                               const float *x, float *out, hc_error *error);
/* The machine of section 4 of the paper: one nonzero activation (x NULL: every activation) is broadcast per cycle,
 * unless a queue of `depth` is full. An element processes one entry per cycle. busy (elements): cycles with an
 * entry. */
hc_status hc_eie_load(const hc_eie *eie, const float *x, int64_t depth, int64_t *busy, hc_eie_cycles *found,
                      hc_error *error);

/* The routes that hc_matmul can use with these arguments, the paths of the CPU's route (ops/product/paths.def), and the
 * chosen ones, for the first matrix (or its first rows) that is not empty. reason: why not, or NULL. seconds: an
 * estimate for one thread, 0 if a route or path refuses. chosen, route: -1 if there is nothing to multiply. */
enum { HC_MAX_CANDIDATES = 32, HC_MAX_ROUTES = 8 };
/* The work of a path for a product. Each count has a cost in nanoseconds (ops/product/costs.def). */
typedef struct {
    double codes;    /* codes that are read as they are stored */
    double decoded;  /* codes that are decoded, and packed if the path packs; scales that are decoded without codes */
    double unpacked; /* of these two: codes of widths other than 4 and 8 bits, or with minima */
    /* codes that are split into limbs, for each limb except the first, or that are multiplied by limbs of x */
    double limbs;
    double spread;   /* columns into which the codes of a pattern are expanded */
    double products; /* multiply-adds, including those of padded tiles */
    double wide;     /* of these: multiply-adds of integers that the kernel's fast sum does not support */
    double groups;   /* sums that are multiplied by a scale, or reduced, separately */
    double values;   /* values of x that are converted to the path's order; a result counts as some of them */
} hc_work;
typedef struct {
    int n_routes, route;
    struct {
        const char *name, *what, *reason;
        double seconds;
    } of_route[HC_MAX_ROUTES];
    int n, chosen;
    struct {
        const char *path, *id, *what, *reason;
        double seconds;
        hc_work work; /* the counts of the estimate */
    } candidate[HC_MAX_CANDIDATES];
} hc_explanation;
hc_status hc_explain(const hc_run *run, const hc_operand *a, const hc_operand *b, const hc_format *activations,
                     const hc_view *out, hc_explanation *explanation, hc_error *error);

/* The names of paths, each once; NULL past the end. With `path` = number + 1 the run uses that path in every product,
 * and fails with HC_VALUE if the path refuses: for tests and experiments. */
const char *hc_path_name(int number);

/* Convolution of x and out as (N, C, H, W) views (their strides determine the order of channels) with w (K, C / groups,
 * R, S). */
typedef struct {
    int64_t stride[2], pad_before[2], dilation[2], groups;
} hc_window;
typedef struct {
    const char *algorithm; /* a name of hc_conv_algorithm. NULL: the fastest by estimate, for floats by shapes alone */
    bool strict;           /* NULL chooses no algorithm whose mean error is larger than that of one chain of sums */
    bool relu;             /* after the bias, values below 0 and -0 become +0; NaN stays */
    const struct hc_prepacked_filters *filters; /* filters that hc_prepack_filters packed from this w, or NULL */
} hc_conv_options;
/* options NULL: all fields are 0. */
hc_status hc_conv2d(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                    const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                    const hc_view *out, hc_error *error);

/* The algorithms by number; false past the end. error: approximate mean error relative to that of one chain of fmaf
 * over (r, s, c). Algorithms with 1 give the bits of that chain. */
bool hc_conv_algorithm(int number, const char **name, const char **what, double *error);
/* The plan of hc_conv2d for these arguments: one candidate per algorithm, by number. */
enum { HC_MAX_ALGORITHMS = 24 };
typedef struct {
    int n, chosen; /* -1: out is empty */
    struct {
        const char *reason; /* why the algorithm refuses, or NULL */
        const char *what;   /* description of the algorithm */
        const char *id;     /* ORDER_symbol of its entry in ops/conv/algorithms.def */
        double seconds;     /* an estimate for one thread */
        double work[6];     /* the counts of the estimate, in the order of hc_conv_work (ops/conv/convolution.h) */
        int64_t bytes;      /* working memory, at most */
        bool admitted;      /* its error is small enough to be chosen by default */
    } candidate[HC_MAX_ALGORITHMS];
} hc_conv_explanation;
hc_status hc_explain_conv2d(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                            const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                            const hc_view *out, hc_conv_explanation *explanation, hc_error *error);

/* Costs of path or algorithm `number` of matmuls or convolutions for runs with these instruction sets: its name, and
 * nanoseconds of a call and of each count of work. Returns their number, 0 past the last one. hc_keep_costs replaces those of
 * all, one after the other, for runs with exactly these instruction sets, n 0: those of this build again. Costs choose among
 * paths and algorithms with the same bits. Those of convolutions of floats are never replaced. */
enum { HC_MAX_COSTS = 10 };
int hc_costs_of(bool conv, int number, uint32_t isa, const char **id, double costs[HC_MAX_COSTS]);
hc_status hc_keep_costs(bool conv, uint32_t isa, int64_t n, const double *costs, hc_error *error);

/* dw (K, C / groups, R, S) = sum over output pixels p, q and images n, ascending, of dy (N, K, P, Q) times the pixel of x
 * (N, C, H, W) that tap (r, s) meets, one fmaf chain each; 0 outside of x. All are float32. */
hc_status hc_conv2d_gradient(const hc_run *run, const hc_view *dy, const hc_view *x, const hc_window *window,
                             const hc_view *dw, hc_error *error);

/* dx (N, C, H, W), the gradient for x of windows of one channel and one filter each with stride 2 and sides of at most 7: for
 * each pixel one fmaf chain over r and s descending of dy (N, C, P, Q) times w (C, 1, R, S), with 0 outside of dy. All are
 * contiguous float32. */
hc_status hc_conv2d_gradient_planes(const hc_run *run, const hc_view *dy, const hc_view *w, const hc_window *window,
                                    const hc_view *dx, hc_error *error);

/* Filters as the panels or transforms that the algorithm for these arguments otherwise packs in each call. hc_conv2d
 * uses them if they match, otherwise w itself. The results are bitwise identical. *prepacked is NULL if the algorithm
 * packs nothing. The form identifies the panels of one w. Its fields are 0 if there are no panels. */
typedef struct {
    int64_t kernel, groups, m, height, width, down, across;
    int64_t panels, panel_floats; /* panels of a group; floats of a panel */
} hc_filter_form;
typedef struct hc_prepacked_filters hc_prepacked_filters;
hc_status hc_form_of_filters(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                             const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                             const hc_view *out, hc_filter_form *form, hc_error *error);
hc_status hc_prepack_filters(const hc_run *run, const hc_view *x, const hc_operand *w, const hc_view *bias,
                             const hc_window *window, const hc_conv_options *options, const hc_format *activations,
                             const hc_view *out, hc_prepacked_filters **prepacked, hc_error *error);
int64_t hc_prepacked_filters_bytes(const hc_prepacked_filters *prepacked);
void hc_prepacked_filters_free(hc_prepacked_filters *prepacked);

/* Convolutions one after the other, each image by itself. Tensors are numbered: the inputs first, then the result of each
 * step. A step is a convolution of the rounded tensor `from`, plus the bias, plus the tensor `plus`; then, if it clamps,
 * values above `high` become `high` and values below `low` become `low`; NaN stays. The results are bitwise identical to
 * those of hc_conv2d with these operations after it. A step without w is the largest values of windows of `pool` values,
 * the first of equal ones. `guess` is kept from call to call: whether rounding results before all of them are known
 * saved time. It does not change results, nor do `filters`. */
typedef struct {
    int from, plus;     /* plus -1: none */
    const hc_packed *w; /* or NULL */
    int64_t pool[2];
    const hc_prepacked_filters *filters; /* packed in an earlier call, or NULL */
    hc_prepacked_filters *packed;        /* out: packed in this call, of the caller's now; or NULL */
    const float *bias;                   /* or NULL */
    const hc_format *activations;
    hc_window window;  /* pad_before: the same after; of a pool at most half of its values, and no dilation */
    int64_t around[4]; /* zeros around the tensor, besides those: top, bottom, left, right; none around an input */
    bool clamps;
    float low, high;
    bool guess;
    hc_view out; /* float32 (N, C, H, W), contiguous; data NULL: no result of the chain */
} hc_conv_step;
hc_status hc_conv_chain(const hc_run *run, int n_inputs, const hc_view *inputs, int n_steps, hc_conv_step *steps,
                        hc_error *error);

/* Convolution without the products of zeros: float32 sums over r, s, c ascending of the pairs in which neither value is
 * 0 (ops/sparse/outer.c). w is a view of floats, groups and dilation are 1. Working memory: under 64 MiB for every
 * size. */
hc_status hc_conv2d_outer(const hc_run *run, const hc_view *x, const hc_view *w, const hc_window *window,
                          const hc_view *out, hc_error *error);
/* Counts of an array of multipliers like SCNN's for this convolution (ops/sparse/outer_counts.c). out_size: height and
 * width. */
typedef struct {
    int64_t rows, columns;        /* of the grid of cells, each with a tile of the image */
    int64_t weights, activations; /* of a step: every weight is multiplied by every activation; at most 64 each */
    int64_t banks, accumulators;  /* of a cell; at most 4096 banks */
} hc_outer_machine;
typedef struct {
    int64_t products, useful, conflicts, steps, cycles;
} hc_outer_counts;
hc_status hc_count_outer(const hc_run *run, const hc_view *x, const hc_view *w, const hc_window *window,
                         const int64_t out_size[2], const hc_outer_machine *machine, hc_outer_counts *counts,
                         hc_error *error);

/* Contiguous items of 1, 2, 4 or 8 bytes as a bitmap and the nonzero items (ops/sparse/bitmap.c). Bit i % 8 of byte i /
 * 8 is item i, bits after the last are 0. `mark` fills the bitmap and counts, `compress` copies the marked items,
 * `expand` is the inverse. HC_VALUE if `kept` is not the number of set bits. */
hc_status hc_bitmap_mark(const hc_run *run, int bytes, int64_t count, const void *items, uint8_t *bitmap, int64_t *kept,
                         hc_error *error);
hc_status hc_bitmap_compress(const hc_run *run, int bytes, int64_t count, const void *items, const uint8_t *bitmap,
                             int64_t kept, void *values, hc_error *error);
hc_status hc_bitmap_expand(const hc_run *run, int bytes, int64_t count, const uint8_t *bitmap, int64_t kept,
                           const void *values, void *items, hc_error *error);

/* One sweep of the search for an order of columns in which the n nonzeros of every m have a larger sum
 * (csrc/sparsity/permute.h). scores: int16 (columns, ld), 0 to 32767, ld a multiple of 32 and at least rows, the
 * padding 0. order: (groups * m) columns by position, -1 for an empty one, changed in place. 1 <= n < m <= 32.
 * *exchanges: number of exchanges made, 0 at a fixed point. */
hc_status hc_permute(const hc_run *run, int64_t rows, int64_t columns, int64_t ld, const int16_t *scores, int n, int m,
                     int64_t groups, int32_t *order, int64_t *exchanges, hc_error *error);

/* The machine's limits, for benchmarks: a loop that does one kind of work as fast as possible. "fma", "dot", "shuffle":
 * amount steps on registers, in each thread; "read", "read-ahead": amount bytes at data, without and with prefetch. The
 * sum of the computed or read values is the same for every ISA and number of threads. */
typedef struct {
    double work; /* operations (shuffle: instructions), or bytes */
    uint64_t sum;
    const char *isa; /* of the kernel that ran */
} hc_limit_result;
hc_status hc_limit(const hc_run *run, const char *what, const void *data, int64_t amount, hc_limit_result *result,
                   hc_error *error);

#endif
