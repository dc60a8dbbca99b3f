/* Paths of tiles: a block computes rows x columns of sums, and stages of both sides go through shared memory. */
#include "cuda/matmul/plans.h"

#include "base/layout.h"
#include "formats/format.h"

const char *hc_cuda_unreadable(const hc_cuda_product *p, const hc_cuda_path *path) {
    const bool is_90a = p->architecture == HC_CUDA_HOPPER;
    if (path->code == HC_CUDA_OF_90A && !is_90a)
        return "its instructions are those of compute capability 9.0";
    if (path->code == HC_CUDA_NOT_90A && is_90a)
        return "the build has no code of it for compute capability 9.0";
    if (path->is_wide != p->form.is_wide)
        return path->is_wide ? "no side has limbs, and sums fit 32 bits" : "a side has limbs, or sums pass 32 bits";
    const hc_cuda_kind kind = p->form.kind == HC_CUDA_STORED ? HC_CUDA_BYTES : p->form.kind;
    return path->reads == kind              ? NULL
           : path->reads == HC_CUDA_24      ? "w has no pattern 2:4"
           : path->reads == HC_CUDA_NIBBLES ? "w is not read in codes of 4 bits"
           : kind == HC_CUDA_24             ? "w is read as its pattern 2:4 keeps it"
                                            : "w is read in codes of 4 bits";
}

/* What the kernels of codes of 4 bits take. Scales are those of segments, or of rows as they are stored. */
static hc_cuda_gemm_s4 gemm_s4_of(const hc_cuda_product *p) {
    const hc_cuda_gemm *gemm = &p->gemm;
    const hc_cuda_side *w = &p->w;
    const float *scales = p->form.mode == HC_INT_GROUPED ? p->made.scales : NULL;
    const hc_component *parts = w->parts.part, *row_scales = &parts[w->format.group ? HC_COARSE : HC_SCALES];
    const bool has_group_scales = p->form.mode == HC_INT_FOLDED && w->format.group;
    return (hc_cuda_gemm_s4){.m = gemm->m,
                             .n = gemm->n,
                             .ld = gemm->ld,
                             .segments = gemm->segments,
                             .w_row_bytes = w->geometry.columns / 2,
                             .length = gemm->length,
                             .x = gemm->x,
                             .w = parts[HC_CODES].data,
                             .group_scales = has_group_scales ? parts[HC_SCALES].data : NULL,
                             .w_stride = parts[HC_CODES].row_stride,
                             .group_scales_stride = has_group_scales ? parts[HC_SCALES].row_stride : 0,
                             .w_scales_stride = p->form.mode == HC_INT_GROUPED ? gemm->segments * (int64_t)sizeof(float)
                                                                               : row_scales->row_stride,
                             .x_scales = gemm->x_scales,
                             .bias = gemm->bias,
                             .w_scales =
                                 p->form.mode == HC_INT_GROUPED ? (const char *)scales : (const char *)row_scales->data,
                             .y = gemm->y,
                             .y_row = gemm->y_row,
                             .y_column = gemm->y_column};
}

void hc_cuda_set_gemm(const hc_cuda_product *p, const hc_cuda_path *path, int w_warps, hc_cuda_step *step) {
    if (path->reads == HC_CUDA_NIBBLES && !path->expands) {
        step->params.gemm_s4 = gemm_s4_of(p);
        step->params.gemm_s4.w_warps = w_warps;
        step->params_bytes = sizeof step->params.gemm_s4;
    } else if (path->reads == HC_CUDA_24) {
        step->params.gemm_24 = (hc_cuda_gemm_24){p->gemm, p->made.places};
        step->params.gemm_24.gemm.w_warps = w_warps;
        step->params_bytes = sizeof step->params.gemm_24;
    } else {
        step->params.gemm = p->gemm;
        step->params.gemm.w_warps = w_warps;
        step->params_bytes = sizeof step->params.gemm;
    }
}

/* One float behind the other. */
static bool has_dense_row_scales(const hc_cuda_side *w) {
    return w->parts.part[w->format.group ? HC_COARSE : HC_SCALES].row_stride == sizeof(float);
}

const char *hc_cuda_tiles_refuses(const hc_cuda_product *p, const hc_cuda_path *path) {
    const char *reason = hc_cuda_unreadable(p, path);
    const bool has_whole = p->form.segments * p->form.length == hc_round_up(p->form.ld, path->step);
    return reason ? reason
           : path->length && (path->length != p->form.length || !has_whole)
               ? "groups have another length, or do not fill whole stages"
           : path->expands && p->form.mode == HC_INT_FOLDED && !has_dense_row_scales(&p->w)
               ? "scales of rows are not one behind the other"
               : NULL;
}

hc_cuda_work hc_cuda_tiles_work(const hc_cuda_product *p, const hc_cuda_path *path) {
    const int64_t stages = hc_cuda_rounds(p, path) * hc_ceil_div(p->form.ld, path->step);
    return (hc_cuda_work){.rounds = (double)stages * p->gemm.x_limbs * p->gemm.w_limbs,
                          .codes = path->expands ? (double)p->n * (double)p->form.ld : 0};
}

/* Bytes of shared memory: stages of all limbs; of warpgroups also decoded codes, scales of groups, and of 2:4 places, of which
 * those of two stages lie together, with scales of x. */
static int shared_bytes(const hc_cuda_product *p, const hc_cuda_path *path) {
    const int x_bytes = path->rows * path->step, w_bytes = path->columns * path->w_step, size = (int)sizeof(float);
    const int stages = path->stages * (p->gemm.x_limbs * x_bytes + p->gemm.w_limbs * w_bytes);
    if (path->code != HC_CUDA_OF_90A)
        return stages;
    if (path->reads == HC_CUDA_24)
        return stages + (path->stages + 1) / 2 * (2 * path->columns * path->step / 8) + path->rows * size;
    return stages + (path->w_step < path->step ? 3 * path->columns * path->step : 0) +
           (p->form.mode == HC_INT_GROUPED ? 3 * 4 * (path->rows + path->columns) * size : 0);
}

/* Rows of bytes that all tiles read, in place of codes that each tile decodes. */
static void add_expanded(hc_cuda_product *p, hc_cuda_plan *plan) {
    enum { PIECE = 16, EACH = 4 /* codes and rows of a thread */, THREADS = 256, MOST_BLOCKS = 65535 };
    const hc_cuda_gemm_s4 stored = gemm_s4_of(p);
    int8_t *bytes = hc_cuda_reserve(plan, stored.n * stored.ld);
    hc_cuda_step *step =
        hc_cuda_add_step(plan, "warpgroup_90a", "hc_expand_nibbles", hc_ceil_div(stored.ld, PIECE * THREADS),
                         hc_min(hc_ceil_div(stored.n, EACH), MOST_BLOCKS), THREADS, 0, sizeof(hc_cuda_expand_nibbles));
    step->params.expand_nibbles = (hc_cuda_expand_nibbles){
        stored.n, stored.ld, stored.w, stored.group_scales, stored.w_stride, stored.group_scales_stride, bytes};
    p->gemm.w = bytes;
    p->gemm.w_scales = (const float *)stored.w_scales;
}

void hc_cuda_tiles_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan) {
    if (path->expands)
        add_expanded(p, plan);
    hc_cuda_set_gemm(p, path, 0,
                     hc_cuda_add_step(plan, path->module, path->kernel[0], hc_ceil_div(p->m, path->rows),
                                      hc_ceil_div(p->n, path->columns), path->threads, shared_bytes(p, path), 0));
}
