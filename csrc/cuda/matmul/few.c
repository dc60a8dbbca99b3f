/* Paths of few rows of x: weights go straight to registers, x through shared memory or L1. */
#include "cuda/matmul/plans.h"

#include "base/layout.h"
#include "formats/format.h"

enum { MOST = 64, STEP = HC_CUDA_FEW_STEP, SEGMENT = 32 /* columns, of the grouped ones */, FEWER = 16 };

/* Rows that hc_gemm_few_s4_* read as they are stored: whole pieces of 16 bytes. */
static bool has_pieces(const hc_cuda_side *w) {
    const hc_stored_form form = hc_form_of(&w->format);
    const hc_component *codes = &w->parts.part[HC_CODES];
    const bool has_group_scales = hc_form_has_nibble_scales(&form) && w->geometry.group == 16;
    const bool has_row_scales = hc_form_has_f32_scales(&form) && w->format.group == 0;
    return hc_form_is_nibbles(&form) && (has_group_scales || has_row_scales) && w->format.m == 0 &&
           w->geometry.runs == 1 && w->geometry.columns % 32 == 0 && codes->row_stride % 16 == 0 &&
           (uintptr_t)codes->data % 16 == 0;
}

const char *hc_cuda_few_refuses(const hc_cuda_product *p, const hc_cuda_path *path) {
    const char *reason = path->reads_pieces && !p->form.is_wide ? NULL : hc_cuda_unreadable(p, path);
    return reason        ? reason
           : p->m > MOST ? "x has more than 64 rows"
           : path->reads_pieces
               ? (has_pieces(&p->w) ? NULL
                                    : "w is not codes of 4 bits in pieces of 16 bytes with scales of rows or of 16")
           : p->form.ld % STEP ? "rows are not a multiple of 128 bytes"
                               : NULL;
}

/* Up to 8 rows of x, a block has 16 rows of w. More go through shared memory, and rows of w that share them are chosen so
 * that blocks fill the device while few of them read x. */
typedef struct {
    int64_t blocks, shared, read; /* read: bytes of a multiprocessor */
    int threads, w_warps;         /* w_warps: warps of a block with other rows of w */
} few_shape;

static few_shape shape_of(const hc_cuda_product *p, const hc_cuda_path *path) {
    enum { WARPS = 16, W_ROWS = 16, X_ROWS = 8, SUM_BYTES = 512 /* of a warp and X_ROWS */, STAGES = 3 };
    const int64_t ld = hc_cuda_ld_of(p, path), tiles = hc_ceil_div(p->m, X_ROWS);
    const int64_t row_bytes = path->reads == HC_CUDA_24        ? ld * 5 / 8
                              : path->reads == HC_CUDA_NIBBLES ? p->w.geometry.columns / 2
                                                               : ld;
    few_shape found = {.threads = WARPS * HC_WARP};
    if (tiles == 1) { /* 16 warps for each multiprocessor */
        found.blocks = hc_ceil_div(p->n, W_ROWS);
        const int warps = found.blocks <= 2 * p->at_once ? WARPS / 2 : WARPS / 4;
        found.threads = warps * HC_WARP;
        found.shared = warps * SUM_BYTES;
        found.w_warps = 1;
        found.read = hc_ceil_div(found.blocks, p->at_once) * (W_ROWS * row_bytes + p->m * ld);
        return found;
    }
    for (int w_warps = 1; w_warps <= WARPS; w_warps *= 2) {
        const int64_t x_bytes = tiles * X_ROWS * (WARPS / w_warps * STEP + path->gap);
        const int64_t bytes = hc_max(STAGES * x_bytes, WARPS * tiles * SUM_BYTES);
        const int64_t blocks = hc_ceil_div(p->n, W_ROWS * w_warps);
        const int64_t read = hc_ceil_div(blocks, p->at_once) * (W_ROWS * w_warps * row_bytes + p->m * ld);
        if (bytes <= HC_CUDA_LARGE_SHARED_BYTES && (!found.w_warps || read < found.read))
            found = (few_shape){blocks, bytes, read, found.threads, w_warps};
    }
    return found;
}

hc_cuda_work hc_cuda_few_work(const hc_cuda_product *p, const hc_cuda_path *path) {
    return (hc_cuda_work){.bytes = (double)shape_of(p, path).read};
}

void hc_cuda_few_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan) {
    const few_shape shape = shape_of(p, path);
    hc_cuda_step *step =
        hc_cuda_add_step(plan, "few_rows", path->kernel[p->m > 8], shape.blocks, 1, shape.threads, shape.shared, 0);
    hc_cuda_set_gemm(p, path, shape.w_warps, step);
}

const char *hc_cuda_few_segments_refuses(const hc_cuda_product *p, const hc_cuda_path *path) {
    const char *reason = hc_cuda_unreadable(p, path);
    return reason                      ? reason
           : p->m > MOST               ? "x has more than 64 rows"
           : p->form.length != SEGMENT ? "groups are not 32 columns"
           : p->form.ld % STEP         ? "rows are not a multiple of 128 columns"
                                       : NULL;
}

hc_cuda_work hc_cuda_few_segments_work(const hc_cuda_product *p, const hc_cuda_path *path) {
    (void)path;
    return (hc_cuda_work){.rounds = (double)(hc_ceil_div(hc_ceil_div(p->n, 64), p->at_once) * (p->form.ld / STEP))};
}

void hc_cuda_few_segments_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan) {
    const int rows = p->m <= FEWER ? FEWER : MOST, threads = 256, columns = threads / 4, stages = 4;
    hc_cuda_step *step = hc_cuda_add_step(plan, "few_grouped", path->kernel[p->m > FEWER], hc_ceil_div(p->n, columns),
                                          1, threads, stages * rows * (STEP + 16), 0);
    hc_cuda_set_gemm(p, path, 0, step);
}
