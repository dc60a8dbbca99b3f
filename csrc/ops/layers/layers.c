/* Norms, softmax, gates and rotary positions: blocks of rows for the thread pool, each by the best kernel. */
#include "base/threads.h"
#include "hc_layers.h"
#include "kernels/kernel.h"

enum { VALUES = 1 << 15 }; /* of a block: fewer values are not worth waking a thread */

typedef struct {
    const hc_run *run;
    const hc_layer *layer;
    int64_t block; /* rows */
} layer_job;

/* y = g up, or g if up is NULL; g = max(x, 0), or its square. */
static void relu_gate(int64_t n, bool squared, const float *x, const float *up, float *y) {
    for (int64_t i = 0; i < n; i++) {
        float g = x[i] < 0 ? 0 : x[i];
        g = squared ? g * g : g;
        y[i] = up ? g * up[i] : g;
    }
}

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
    case HC_LAYER_GELU_ERF:
        HC_PICK(gate, job->run)
        (rows * n,
         layer->kind == HC_LAYER_SILU   ? HC_GATE_SILU
         : layer->kind == HC_LAYER_GELU ? HC_GATE_GELU
                                        : HC_GATE_ERF,
         x, layer->weight ? layer->weight + first * n : NULL, y);
        return;
    case HC_LAYER_RELU:
    case HC_LAYER_RELU2:
        relu_gate(rows * n, layer->kind == HC_LAYER_RELU2, x, layer->weight ? layer->weight + first * n : NULL, y);
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
