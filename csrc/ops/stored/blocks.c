/* GGUF blocks of whole arrays: checks the sizes of components and distributes rows to threads. */
#include "formats/ggml/blocks.h"
#include "base/threads.h"
#include "formats/format.h"
#include "hc.h"

typedef struct {
    const hc_block_kind *kind;
    const hc_packed *packed;
    uint8_t *data;
    int64_t rows, blocks, rows_a_task;
    bool reads;
} blocks_job;

static void blocks_task(void *context, int64_t task, int thread) {
    (void)thread;
    const blocks_job *job = context;
    const int64_t row_bytes = job->blocks * hc_block_bytes(job->kind);
    for (int64_t row = task * job->rows_a_task; row < hc_min(job->rows, (task + 1) * job->rows_a_task); row++)
        if (job->reads)
            hc_blocks_to_row(job->kind, job->blocks, job->data + row * row_bytes, &job->packed->components, row);
        else
            hc_blocks_from_row(job->kind, job->blocks, &job->packed->components, row, job->data + row * row_bytes);
}

static hc_status run_blocks(const hc_run *run, const char *name, const hc_packed *packed, uint8_t *data, bool reads,
                            hc_error *error) {
    enum { VALUES_A_TASK = 1 << 16 };
    const hc_block_kind *kind = hc_find_blocks(name);
    if (!kind)
        return hc_fail(error, HC_VALUE, "blocks: there are none called '%s'", name);
    hc_geometry geometry;
    hc_component_layout layout[HC_N_COMPONENTS] = {{0}};
    const hc_status status =
        hc_layout(&packed->format, packed->ndim, packed->shape, packed->n_axes, packed->axes, &geometry, layout, error);
    if (status != HC_OK)
        return status;
    const int64_t blocks = geometry.columns / kind->block;
    bool fits = geometry.columns % kind->block == 0 && packed->format.m == 0;
    for (int i = 0; i < HC_N_COMPONENTS; i++) {
        const int64_t wanted = blocks * hc_block_part(kind, (hc_component_id)i);
        const int64_t found = layout[i].present && layout[i].per_row ? hc_component_bytes(&layout[i]) : 0;
        fits = fits && found == wanted;
    }
    if (!fits)
        return hc_fail(error, HC_VALUE, "blocks: the components are not those of rows of whole blocks of %s", name);
    blocks_job job = {kind, packed, data, geometry.rows, blocks, VALUES_A_TASK / hc_max(geometry.columns, 1) + 1,
                      reads};
    hc_parallel(run->n_threads, hc_ceil_div(job.rows, job.rows_a_task), blocks_task, &job);
    return HC_OK;
}

hc_status hc_read_blocks(const hc_run *run, const char *name, const uint8_t *blocks, const hc_packed *packed,
                         hc_error *error) {
    return run_blocks(run, name, packed, (uint8_t *)blocks, true, error);
}

hc_status hc_write_blocks(const hc_run *run, const char *name, const hc_packed *packed, uint8_t *blocks,
                          hc_error *error) {
    return run_blocks(run, name, packed, blocks, false, error);
}

int64_t hc_blocks_bytes(const char *name, int64_t values) {
    const hc_block_kind *kind = hc_find_blocks(name);
    return kind && values % kind->block == 0 ? values / kind->block * hc_block_bytes(kind) : 0;
}
