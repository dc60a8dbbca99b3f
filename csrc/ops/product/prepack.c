/* Panels of the right side of an integer matmul, packed once and kept: FOLDED if the format folds, otherwise GROUPED
 * with the segments of its own groups. These are the segments of the matmul if the left side has no groups.
 *
 * Memory: one byte per value and limb, rows and k rounded up to the kernel's nr and kr, and the scales.
 */
#include "ops/product/prepack.h"

#include "base/threads.h"
#include "ops/check.h"
#include "ops/product/operand.h"

#include <string.h>

enum { MAX_COLUMNS = 8192 }; /* the shortest KC block of gemm.c's plans: more columns would need several KC blocks */

struct hc_prepacked {
    hc_prepacked_origin origin;
    hc_order kind;
    const hc_kernel *kernel; /* whose panels these are */
    hc_kc kc;
    hc_panels panels;
    int64_t count, bytes;
    uint8_t *memory, *scratch;
};

bool hc_prepacked_fits(const hc_prepacked *prepacked, hc_order kind, const hc_source *a, const hc_kernel *kernel,
                       int64_t kc_count) {
    return prepacked && kc_count == 1 && prepacked->kind == kind && prepacked->kernel == kernel &&
           (kind == HC_ORDER_FOLDED || a->group == 0);
}

void hc_prepacked_panels(const hc_prepacked *prepacked, int64_t first, hc_panels *side) {
    const hc_panels *all = &prepacked->panels;
    const int64_t words = first * prepacked->kc.n_segments * all->tile;
    side->limb_bytes = all->limb_bytes;
    side->panels = all->panels + first * all->limbs * all->limb_bytes;
    side->init = all->init ? all->init + words * all->limbs : NULL;
    side->scales = all->scales + words;
    side->row_scales = all->row_scales + first * all->tile;
}

static void pack_task(void *context, int64_t panel, int thread) {
    const hc_prepacked *p = context;
    hc_pack_panel(&p->panels, &p->kc, panel * p->panels.tile, panel, p->scratch + thread * hc_pack_scratch());
}

static bool allocate(hc_prepacked *p, int64_t rows, int n_threads) {
    hc_panels *side = &p->panels;
    p->count = hc_ceil_div(rows, side->tile);
    side->limb_bytes = hc_limb_bytes(side, p->kc.steps);
    const int64_t words = p->count * p->kc.n_segments * side->tile * 4;
    const int64_t init_at = p->count * side->limbs * side->limb_bytes;
    const int64_t scales_at = init_at + (side->compensation_s8 ? words * side->limbs : 0);
    const int64_t row_scales_at = scales_at + (p->kind == HC_ORDER_GROUPED || side->split ? words : 0);
    p->bytes = row_scales_at + p->count * side->tile * 4;
    p->memory = hc_alloc_aligned(p->bytes);
    p->scratch = hc_alloc_aligned(hc_pack_scratch() * n_threads);
    if (!p->memory || !p->scratch)
        return false;
    side->panels = p->memory;
    side->init = side->compensation_s8 ? (int32_t *)(void *)(p->memory + init_at) : NULL;
    side->scales = (float *)(void *)(p->memory + scales_at);
    side->row_scales = (float *)(void *)(p->memory + row_scales_at);
    return true;
}

hc_status hc_prepack(const hc_run *run, const hc_packed *packed, hc_prepacked **prepacked, hc_error *error) {
    hc_geometry geometry;
    *prepacked = NULL;
    const hc_status status = hc_check_packed("prepack: w", packed, &geometry, error);
    if (status != HC_OK)
        return status;
    const hc_packed_context context = {run, &packed->format, &geometry, &packed->components, 0};
    hc_source source;
    hc_packed_source(&source, &context, geometry.rows);
    const bool folds = source.form[HC_INT_FOLDED].available;
    if ((!folds && !source.form[HC_INT_GROUPED].available) || !source.rows || !source.columns ||
        source.columns > MAX_COLUMNS)
        return HC_OK;
    hc_prepacked *p = hc_alloc_aligned(sizeof *p);
    if (!p)
        return hc_fail(error, HC_MEMORY, "prepack: not enough memory");
    *p = (hc_prepacked){.origin = {packed->format, geometry}, .kind = folds ? HC_ORDER_FOLDED : HC_ORDER_GROUPED};
    hc_panels_init(&p->panels, p->kind, run, &source, true);
    /* Dense panels run at the speed of AMX for every number of rows of x. Only one kind of panels is kept. */
    const bool skips = folds && hc_nm_kernel(&source, run) && !(HC_BEST(gemm_s8, run)->needs & HC_ISA_AMX);
    const hc_source without_groups = {.columns = source.columns, .form[HC_INT_FOLDED] = {.n_limbs = 1}};
    const bool splits = folds && !skips && hc_split_columns(&without_groups, &source, run);
    const hc_kernel *kernel =
        splits ? hc_split_line(&source, run) : hc_product_line(p->kind, p->panels.limbs > 1, skips, &source, run);
    if (splits)
        hc_panels_split(&p->panels);
    p->kernel = kernel;
    hc_panels_use_kernel(&p->panels, kernel, run);
    p->kc.end = hc_alloc_aligned(source.columns * (int64_t)(sizeof *p->kc.end + sizeof *p->kc.segment_steps));
    bool has_memory = p->kc.end != NULL;
    if (has_memory) {
        p->kc.segment_steps = (int32_t *)(p->kc.end + source.columns);
        hc_kc_fill(&p->kc, splits ? HC_ORDER_GROUPED : p->kind, &without_groups, &source, 0, source.columns,
                   p->panels.kr);
        has_memory = allocate(p, source.rows, run->n_threads);
    }
    if (has_memory) {
        hc_parallel(run->n_threads, p->count, pack_task, p);
        hc_free_aligned(p->scratch);
        hc_free_aligned(p->kc.end);
        p->scratch = NULL;
        p->kc.end = NULL;
        p->panels.source = NULL; /* it was on this stack */
        *prepacked = p;
        return HC_OK;
    }
    hc_prepacked_free(p);
    return hc_fail(error, HC_MEMORY, "prepack: not enough memory for %lld rows of %lld values", (long long)source.rows,
                   (long long)source.columns);
}

int64_t hc_prepacked_bytes(const hc_prepacked *prepacked) { return prepacked ? prepacked->bytes : 0; }

void hc_prepacked_free(hc_prepacked *prepacked) {
    if (!prepacked)
        return;
    hc_free_aligned(prepacked->memory);
    hc_free_aligned(prepacked->scratch);
    hc_free_aligned(prepacked->kc.end);
    hc_free_aligned(prepacked);
}
