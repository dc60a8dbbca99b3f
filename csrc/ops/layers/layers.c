/* Norms, softmax, gates and rotary positions: blocks of rows for the thread pool, each by the best kernel. */
#include "base/threads.h"
#include "hc.h"
#include "kernels/kernel.h"

enum { VALUES = 1 << 15 }; /* of a block: fewer values are not worth waking a thread */

typedef struct {
    const hc_run *run;
    const hc_layer *layer;
    int64_t block; /* rows */
} layer_job;

static void layer_block(void *context, int64_t task, int thread) {
    (void)thread;
    const layer_job *job = context;
    const hc_layer *layer = job->layer;
    const int64_t first = task * job->block, n = layer->n, rows = hc_min(job->block, layer->rows - first);
    const float *x = layer->x + first * n;
    float *y = layer->y + first * n;
    switch (layer->kind) {
    case HC_LAYER_RMS_NORM:
    case HC_LAYER_NORM:
        HC_PICK(norm, job->run)
        (rows, n, x, layer->kind == HC_LAYER_NORM, layer->epsilon, layer->weight, layer->bias, y);
        return;
    case HC_LAYER_SOFTMAX:
        HC_PICK(softmax, job->run)(rows, n, x, y);
        return;
    case HC_LAYER_SILU:
    case HC_LAYER_GELU:
        HC_PICK(gate, job->run)
        (rows * n, layer->kind == HC_LAYER_GELU, x, layer->weight ? layer->weight + first * n : NULL, y);
        return;
    case HC_LAYER_ROPE:
        HC_PICK(rope, job->run)
        (&(hc_rope_form){n, layer->half, layer->repeat, layer->turns, layer->pairs}, first, rows, layer->x,
         layer->weight, layer->bias, layer->y);
        return;
    case HC_N_LAYERS:
        return;
    }
}

void hc_run_layer(const hc_run *run, const hc_layer *layer) {
    if (layer->rows <= 0 || layer->n <= 0)
        return;
    layer_job job = {run, layer, hc_max(1, VALUES / layer->n)};
    const int64_t tasks = hc_ceil_div(layer->rows, job.block);
    hc_parallel((int)hc_min(run->n_threads, tasks), tasks, layer_block, &job);
}
