/* Norms, softmax, gates and rotary positions: blocks of rows for the thread pool, each by the best kernel.
 *
 * Gates that few networks have are plain loops here. erf(t), |t| < 4: t times a Chebyshev series of t^2 / 8 - 1 in
 * float64, summed by Clenshaw's recurrence, with an error below 2e-8. Beyond, it is the sign of t.
 */
#include "base/threads.h"
#include "hc.h"
#include "kernels/kernel.h"

#include <math.h>

enum { VALUES = 1 << 15 }; /* of a block: fewer values are not worth waking a thread */

typedef struct {
    const hc_run *run;
    const hc_layer *layer;
    int64_t block; /* rows */
} layer_job;

static const double erf_series[] = {
    0.48591295690286307,    -0.34540785500494975,    0.161829101213646,     -0.07648275610550886,
    0.034669936800507464,   -0.01481186414781473,    0.005922937956232057,  -0.002211840658810179,
    0.0007714154278403835,  -0.0002515965878095848,  7.688658221091806e-05, -2.2065495938874236e-05,
    5.961274041283321e-06,  -1.5197750687930365e-06, 3.664930258016531e-07, -8.378986749464708e-08,
    1.8200721725080663e-08, -3.760101540070524e-09,  7.174542677793196e-10,
};

static double erf_of(double t) {
    if (!(fabs(t) < 4))
        return t > 0 ? 1 : t < 0 ? -1 : t;
    const double u = t * t * 0.125 - 1, twice = u + u;
    double next = 0, after = 0;
    for (int i = (int)(sizeof erf_series / sizeof *erf_series) - 1; i > 0; i--) {
        const double now = twice * next - after + erf_series[i];
        after = next;
        next = now;
    }
    return t * (u * next - after + erf_series[0]);
}

/* y = g up, or g if up is NULL. erf: g = x (1 + erf(x / sqrt(2))) / 2; relu: g = max(x, 0), or its square. */
static void plain_gate(int64_t n, hc_layer_kind kind, const float *x, const float *up, float *y) {
    for (int64_t i = 0; i < n; i++) {
        float g = x[i];
        if (kind == HC_LAYER_GELU_ERF)
            g = (float)(0.5 * g * (1 + erf_of(g * 0.70710678118654752)));
        else
            g = g < 0 ? 0 : kind == HC_LAYER_RELU2 ? g * g : g;
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
        HC_PICK(gate, job->run)
        (rows * n, layer->kind == HC_LAYER_GELU, x, layer->weight ? layer->weight + first * n : NULL, y);
        return;
    case HC_LAYER_GELU_ERF:
    case HC_LAYER_RELU:
    case HC_LAYER_RELU2:
        plain_gate(rows * n, layer->kind, x, layer->weight ? layer->weight + first * n : NULL, y);
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
