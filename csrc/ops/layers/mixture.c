/* The router of a layer with experts: it selects experts for each token, and their shares.
 *
 * Memory: the scores of each token, during the call.
 * Shazeer et al., "Outrageously Large Neural Networks", 2017 (arXiv 1701.06538), equation 3.
 */
#include "hc_llm.h"

/* scores (rows, experts) = from @ router + bias. Floats of a dense router are multiplied by rounded x, in `rounded`. */
static hc_status score(const hc_run *run, const hc_mixture *mixture, int64_t rows, const float *from, float *rounded,
                       float *scores, hc_error *error) {
    static const int axis = 1;
    const int64_t width = mixture->experts.width, experts = mixture->experts.experts;
    const hc_format *activations = mixture->experts.activations;
    hc_run some = *run;
    some.n_threads = hc_threads_for(run->n_threads, (double)rows * (double)width * (double)experts);
    hc_view x = {(void *)from, HC_F32, 2, {rows, width}, {4 * width, 4}, HC_HOST};
    const hc_view out = {scores, HC_F32, 2, {rows, experts}, {4 * experts, 4}, HC_HOST};
    const hc_view bias = {(void *)mixture->bias, HC_F32, 1, {experts}, {4}, HC_HOST};
    if (activations && mixture->router.dense) {
        const hc_view to = {rounded, HC_F32, 2, {rows, width}, {4 * width, 4}, HC_HOST};
        const hc_clip clip = {HC_CLIP_ABSMAX, 0};
        const hc_status status = hc_fake_quantize(&some, &x, activations, 1, &axis, &clip, NULL, &to, error);
        if (status != HC_OK)
            return status;
        x = to;
        activations = NULL;
    }
    const hc_operand a = {&x, NULL};
    return hc_matmul(&some, &a, &mixture->router, activations, mixture->bias ? &bias : NULL, &out, error);
}

/* True if a score comes before another one that has a smaller index. */
static bool is_before(float score, float other) { return score > other || (score == score && other != other); }

/* The indices of the `used` largest scores, in descending order, equal ones in ascending order. */
static void pick(const float *scores, int64_t experts, int64_t used, int64_t *picked) {
    int64_t n = 0;
    for (int64_t e = 0; e < experts; e++) {
        int64_t at = n;
        while (at > 0 && is_before(scores[e], scores[picked[at - 1]]))
            at--;
        if (at == used)
            continue;
        n = hc_min(n + 1, used);
        for (int64_t i = n - 1; i > at; i--)
            picked[i] = picked[i - 1];
        picked[at] = e;
    }
}

static void softmax(const hc_run *run, int64_t rows, int64_t n, float *x) {
    hc_run some = *run;
    some.n_threads = hc_threads_for(run->n_threads, (double)rows * (double)n);
    hc_run_layer(&some, &(hc_layer){.kind = HC_LAYER_SOFTMAX, .rows = rows, .n = n, .x = x, .y = x});
}

static void route(const hc_run *run, const hc_mixture *mixture, int64_t rows, float *scores, int64_t *picked,
                  float *shares) {
    const int64_t experts = mixture->experts.experts, used = mixture->experts.used;
    if (!mixture->sums_to_one)
        softmax(run, rows, experts, scores);
    for (int64_t r = 0; r < rows; r++) {
        pick(scores + r * experts, experts, used, picked + r * used);
        for (int64_t i = 0; i < used; i++)
            shares[r * used + i] = scores[r * experts + picked[r * used + i]];
    }
    if (mixture->sums_to_one)
        softmax(run, rows, used, shares);
    for (int64_t i = 0; mixture->factor != 1 && i < rows * used; i++)
        shares[i] *= mixture->factor;
}

hc_status hc_run_mixture(const hc_run *run, const hc_mixture *mixture, int64_t rows, const float *from, float *to,
                         hc_error *error) {
    hc_experts given = mixture->experts;
    const int64_t bytes = rows * given.used * (int64_t)sizeof(int64_t);
    const int64_t floats = rows * (given.width + given.experts + given.used);
    int64_t *picked = hc_alloc_aligned(bytes + floats * (int64_t)sizeof(float));
    if (!picked)
        return hc_fail(error, HC_MEMORY, "llm_layers: not enough memory");
    float *rounded = (float *)(void *)(picked + rows * given.used), *scores = rounded + rows * given.width;
    float *shares = scores + rows * given.experts;
    hc_status status = score(run, mixture, rows, from, rounded, scores, error);
    if (status == HC_OK) {
        route(run, mixture, rows, scores, picked, shares);
        given.tokens = rows;
        given.x = from;
        given.picked = picked;
        given.shares = shares;
        given.out = to;
        status = hc_run_experts(run, &given, error);
    }
    hc_free_aligned(picked);
    return status;
}
