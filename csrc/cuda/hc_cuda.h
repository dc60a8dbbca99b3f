/* Launches on a CUDA device: an operation is a plan, a few steps in order on one stream.
 *
 *   step = name of a kernel, grid, block, dynamic shared memory, one structure of parameters by value
 *
 * Planning looks at shapes, formats and addresses, reads no value and calls no driver: plan.c is part of the core on every
 * machine. All pointers of views and components are addresses of the device. A plan needs a workspace on the device: with
 * `workspace` NULL a planner only says how many bytes. A step clears what must start as zero.
 */
#ifndef HC_CUDA_H
#define HC_CUDA_H

#include "cuda/params.h"
#include "hc_layers.h"

#ifdef __cplusplus
extern "C" {
#endif
typedef struct {
    const char *module, *kernel; /* the module of a kernel is its .cu file */
    uint32_t grid[3], block[3];
    uint32_t shared_bytes, params_bytes;
    union {
        hc_cuda_codec codec;
        hc_cuda_integers integers;
        hc_cuda_gemm gemm;
        hc_cuda_gemm_s4 gemm_s4;
        hc_cuda_expand_nibbles expand_nibbles;
        hc_cuda_minima minima;
        hc_cuda_add_minima add_minima;
        hc_cuda_gemm_24 gemm_24;
        hc_cuda_gemv gemv;
        hc_cuda_sgemm sgemm;
        hc_cuda_floats floats;
        hc_cuda_expand expand;
        hc_cuda_chance chance;
        hc_cuda_table table;
        hc_cuda_note_values note;
        hc_cuda_pass pass;
        hc_cuda_steps steps;
        hc_cuda_slope_sums slope_sums;
        hc_cuda_thresholds thresholds;
        hc_cuda_prune prune;
        hc_cuda_conv_integers conv_integers;
        hc_cuda_conv_floats conv_floats;
        hc_cuda_check check;
        hc_cuda_layer layer;
        hc_cuda_attend attend;
        hc_cuda_clear clear;
    } params;
} hc_cuda_step;

/* The paths of a matmul or convolution (cuda/paths.h). reason: why not, or NULL. seconds: an estimate, 0 if a path refuses, 1e6
 * more without costs for so many rows. */
typedef struct {
    double
        rounds;   /* stages of shared memory that a multiprocessor fills, block after block; of floats, 1,024 columns */
    double bytes; /* of w and x that a multiprocessor reads */
    double codes; /* that are decoded */
} hc_cuda_work;
enum { HC_CUDA_MAX_CANDIDATES = 24 };
typedef struct {
    int n, chosen;
    struct {
        const char *path, *id, *what, *reason;
        double seconds;
        hc_cuda_work work; /* the counts of the estimate */
    } candidate[HC_CUDA_MAX_CANDIDATES];
} hc_cuda_explanation;

enum { HC_CUDA_MAX_STEPS = 12 };
typedef struct {
    int n;
    int64_t workspace_bytes;
    int32_t architecture;    /* 90: of compute capability 9.0; said before planning, 0: any */
    int32_t multiprocessors; /* likewise, 0: those of an H100 */
    bool device_order;       /* likewise: sums of floats may take the order of the matrix units (hc_gemm_bf16) */
    const char *path;        /* likewise, the name of a path (cuda/paths.def); NULL: the smallest estimate */
    hc_cuda_explanation *explanation; /* likewise, of who asks for all paths; NULL: nobody. n is 0 without a choice */
    hc_cuda_illegal *illegal; /* likewise, of who waits for what a format refuses (cuda/params.h); NULL: nobody */
    void *workspace;          /* of the planner that runs */
    hc_cuda_step step[HC_CUDA_MAX_STEPS];
} hc_cuda_plan;

/* A workspace is aligned to 256 bytes. Shapes and axes have been checked, as hc_quantize does.
 * HC_UNSUPPORTED, with a sentence: the kernels lack it. */
typedef struct {
    hc_clip clip;
    hc_cuda_note note; /* of fake_quantize and chance: where the gradient passes */
} hc_cuda_clip;
/* clip: NULL for the largest magnitudes and no note. */
hc_status hc_cuda_plan_quantize(const hc_view *x, const hc_cuda_clip *clip, const hc_packed *packed, void *workspace,
                                hc_cuda_plan *plan, hc_error *error);
/* between: what the values are that a pattern drops, such as 0. */
hc_status hc_cuda_plan_dequantize(const hc_packed *packed, float between, const hc_view *out, void *workspace,
                                  hc_cuda_plan *plan, hc_error *error);
hc_status hc_cuda_plan_fake_quantize(const hc_view *x, const hc_cuda_clip *clip, const hc_format *format, int n_axes,
                                     const int *axes, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                                     hc_error *error);
/* x, w: rows over k (the last axes are reduced); out: (rows of x, rows of w); bias: on the device, or NULL. x is packed, or float
 * values that take the format `activations`, or, with NULL, meet w as they are. */
hc_status hc_cuda_plan_matmul(const hc_operand *x, const hc_format *activations, const hc_packed *w, const float *bias,
                              const hc_view *out, void *workspace, hc_cuda_plan *plan, hc_error *error);

/* The names of paths, each once; NULL past the end. */
const char *hc_cuda_path_name(int number);

/* The form of w that products of integers read, made once: the workspace is kept, and is `prepacked` of w where it is multiplied.
 * It has no bytes where products read w as it is stored. */
hc_status hc_cuda_plan_prepack(const hc_packed *w, void *workspace, hc_cuda_plan *plan, hc_error *error);

/* x, out: (image, channel, h, w) of any strides; w: packed along (2, 3, 1). The bits of hc_conv2d. */
hc_status hc_cuda_plan_conv2d(const hc_view *x, const hc_format *activations, const hc_packed *w,
                              const hc_window *window, bool relu, const float *bias, const hc_view *out,
                              void *workspace, hc_cuda_plan *plan, hc_error *error);

/* out = x rounded by chance, float32, with the scales of q, to which x is quantized first (hc_round_by_chance). infinity: what it
 * becomes, of formats without scales; or 0. */
hc_status hc_cuda_plan_chance(const hc_view *x, const hc_cuda_clip *clip, const hc_packed *q, const hc_levels *levels,
                              float infinity, uint64_t seed, const hc_view *out, void *workspace, hc_cuda_plan *plan,
                              hc_error *error);
/* out = g, float32 in C order, where it passes. */
hc_status hc_cuda_plan_pass(const hc_view *g, const void *note, hc_cuda_note_kind kind, float *out, hc_cuda_plan *plan,
                            hc_error *error);
/* out = x rounded to integers times `scales`, (rows, groups), both in C order; slope: out's derivatives in the scales. The format is one
 * of integers with a sign. */
hc_status hc_cuda_plan_steps(const hc_view *x, const hc_format *format, int n_axes, const int *axes,
                             const hc_view *scales, float *out, float *slope, hc_cuda_plan *plan, hc_error *error);
/* out = the gradient of the scales, (rows, groups). */
hc_status hc_cuda_plan_slope_sums(const hc_view *g, const hc_format *format, int n_axes, const int *axes,
                                  const float *slope, float *out, hc_cuda_plan *plan, hc_error *error);
/* values, metadata: as hc_prune fills them, of float values that float32 holds. */
hc_status hc_cuda_plan_prune(const hc_view *x, int n, int m, int n_axes, const int *axes, float *values,
                             uint8_t *metadata, hc_cuda_plan *plan, hc_error *error);

/* The bits of hc_run_layer and hc_attend_all, whose rules hold. */
hc_status hc_cuda_plan_layer(const hc_layer *layer, hc_cuda_plan *plan, hc_error *error);
hc_status hc_cuda_plan_attention(const hc_attention *given, void *workspace, hc_cuda_plan *plan, hc_error *error);

/* Runs the instructions of device.h on words, to compare them with their definitions. With of_warpgroups, runs those of
 * matmul/wgmma.h, which the device must have. */
hc_status hc_cuda_plan_check(const uint32_t *in, uint32_t *out, bool of_warpgroups, hc_cuda_plan *plan,
                             hc_error *error);

#ifdef __cplusplus
}
#endif

#endif
