/* The router of a layer with experts: it selects experts for each token, and their shares. hc_layers.h states the rules.
 *
 * Memory: the scores of each token, and intermediate results of the shared experts, during the call.
 * Shazeer et al., "Outrageously Large Neural Networks", 2017 (arXiv 1701.06538), equation 3.
 */
#include "ops/layers/steps.h"

#include <math.h>

static hc_status product(const hc_run *run, const hc_mixture *mixture, int64_t rows, const hc_operand *weight,
                         const float *bias, int64_t k, int64_t n, const float *from, float *to, hc_error *error) {
    const hc_format *activations = weight->dense ? NULL : mixture->experts.activations;
    return hc_step_product(run, rows, weight, bias, activations, k, n, from, to, error);
}

/* scores (rows, n) = from @ weight + bias. Floats of a dense weight are multiplied by rounded x, in `rounded`. */
static hc_status score(const hc_run *run, const hc_mixture *mixture, int64_t rows, const hc_operand *weight,
                       const float *bias, int64_t n, const float *from, float *rounded, float *scores,
                       hc_error *error) {
    static const int axis = 1;
    const int64_t width = mixture->experts.width;
    const hc_format *activations = mixture->experts.activations;
    if (activations && weight->dense) {
        const hc_run some = hc_step_run(run, (double)rows * (double)width);
        const hc_view x = {(void *)from, HC_F32, 2, {rows, width}, {4 * width, 4}, HC_HOST};
        const hc_view to = {rounded, HC_F32, 2, {rows, width}, {4 * width, 4}, HC_HOST};
        const hc_clip clip = {HC_CLIP_ABSMAX, 0};
        const hc_status status = hc_fake_quantize(&some, &x, activations, 1, &axis, &clip, NULL, &to, error);
        if (status != HC_OK)
            return status;
        from = rounded;
    }
    return product(run, mixture, rows, weight, bias, width, n, from, scores, error);
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
    const hc_run some = hc_step_run(run, (double)rows * (double)n);
    hc_run_layer(&some, &(hc_layer){.kind = HC_LAYER_SOFTMAX, .rows = rows, .n = n, .x = x, .y = x});
}

/* x = sigmoid(x), which is the first of softmax(x, 0). `pairs` has room for twice as many values. */
static void sigmoid(const hc_run *run, int64_t values, float *x, float *pairs) {
    for (int64_t i = 0; i < values; i++) {
        pairs[2 * i] = x[i];
        pairs[2 * i + 1] = 0;
    }
    softmax(run, values, 2, pairs);
    for (int64_t i = 0; i < values; i++)
        x[i] = pairs[2 * i];
}

typedef struct {
    float *rounded, *scores, *choice, *pairs, *shares;
    int64_t *picked, *groups;
} mixture_memory;

/* Minus infinity for experts outside of the best groups. */
static void keep_best_groups(const hc_mixture *mixture, float *choice, float *score, int64_t *used) {
    const int64_t groups = mixture->groups, each = mixture->experts.experts / groups;
    for (int64_t g = 0; g < groups; g++) {
        int64_t best[2];
        pick(choice + g * each, each, mixture->sums_two ? 2 : 1, best);
        score[g] = choice[g * each + best[0]];
        if (mixture->sums_two)
            score[g] += choice[g * each + best[1]];
    }
    pick(score, groups, mixture->groups_used, used);
    for (int64_t g = 0; g < groups; g++) {
        bool is_used = false;
        for (int64_t i = 0; i < mixture->groups_used; i++)
            is_used |= used[i] == g;
        for (int64_t e = 0; !is_used && e < each; e++)
            choice[g * each + e] = -INFINITY;
    }
}

/* Two experts of a row of the router, and their shares. `near` is changed. */
static void mix_two(const hc_run *run, const hc_mixture *mixture, const float *router, float *near, int64_t *picked,
                    float *shares) {
    const int64_t experts = mixture->experts.experts;
    const float noise = 2 * mixture->noise;
    for (int i = 0; i < 2; i++) {
        int64_t best = i > 0 && picked[0] == 0 ? 1 : 0;
        for (int64_t e = best + 1; e < experts; e++)
            if ((i == 0 || e != picked[0]) && router[e] > router[best])
                best = e;
        const float most = router[best];
        for (int64_t e = 0; e < experts; e++) {
            const float size = fabsf(router[e]) > most ? fabsf(router[e]) : most;
            near[e] = (most - router[e]) / size > noise || (i > 0 && e == picked[0]) ? -INFINITY : router[e];
        }
        softmax(run, 1, experts, near);
        picked[i] = best;
        shares[i] = near[best];
    }
}

static void scale(const hc_mixture *mixture, int64_t rows, bool sums_to_one, float *shares) {
    const int64_t used = mixture->experts.used;
    for (int64_t r = 0; r < rows; r++) {
        float *row = shares + r * used, sum = row[0];
        for (int64_t i = 1; i < used; i++)
            sum += row[i];
        for (int64_t i = 0; i < used; i++) {
            if (sums_to_one)
                row[i] /= sum + 1e-20f;
            if (mixture->factor != 1)
                row[i] *= mixture->factor;
        }
    }
}

static void route(const hc_run *run, const hc_mixture *mixture, int64_t rows, const mixture_memory *at) {
    const int64_t experts = mixture->experts.experts, used = mixture->experts.used;
    const bool is_softmax = mixture->route == HC_ROUTE_SOFTMAX;
    const bool of_picked = is_softmax && mixture->sums_to_one && mixture->groups == 1 && !mixture->correction;
    if (is_softmax && !of_picked)
        softmax(run, rows, experts, at->scores);
    else if (mixture->route == HC_ROUTE_SIGMOID)
        sigmoid(run, rows * experts, at->scores, at->pairs);
    for (int64_t r = 0; r < rows; r++) {
        const float *scores = at->scores + r * experts;
        int64_t *picked = at->picked + r * used;
        float *shares = at->shares + r * used;
        if (mixture->route == HC_ROUTE_MIXER) {
            mix_two(run, mixture, scores, at->choice, picked, shares);
            continue;
        }
        for (int64_t e = 0; e < experts; e++)
            at->choice[e] = mixture->correction ? scores[e] + mixture->correction[e] : scores[e];
        if (mixture->groups > 1)
            keep_best_groups(mixture, at->choice, at->pairs, at->groups);
        pick(at->choice, experts, used, picked);
        for (int64_t i = 0; i < used; i++)
            shares[i] = scores[picked[i]];
    }
    if (of_picked)
        softmax(run, rows, used, at->shares);
    if (mixture->route != HC_ROUTE_MIXER)
        scale(mixture, rows, mixture->sums_to_one && !of_picked, at->shares);
}

/* to += the experts of all tokens. hc_run_layer's gate is that of the selected experts. */
static hc_status add_shared(const hc_run *run, const hc_mixture *mixture, int64_t rows, const float *from,
                            float *rounded, float *to, hc_error *error) {
    const hc_shared_experts *shared = &mixture->shared;
    const int64_t hidden = shared->hidden, width = mixture->experts.width;
    float *gate = hc_alloc_aligned(rows * (2 * hidden + width + 3) * (int64_t)sizeof *gate);
    if (!gate)
        return hc_fail(error, HC_MEMORY, "llm_layers: not enough memory");
    float *up = gate + rows * hidden, *y = up + rows * hidden, *share = y + rows * width, *pairs = share + rows;
    hc_status status = product(run, mixture, rows, &shared->gate, shared->gate_bias, width, hidden, from, gate, error);
    if (status == HC_OK)
        status = product(run, mixture, rows, &shared->up, shared->up_bias, width, hidden, from, up, error);
    if (status == HC_OK) {
        const hc_run some = hc_step_run(run, (double)rows * (double)hidden);
        hc_run_layer(
            &some,
            &(hc_layer){.kind = mixture->experts.kind, .rows = rows, .n = hidden, .x = gate, .weight = up, .y = gate});
        status = product(run, mixture, rows, &shared->down, shared->down_bias, hidden, width, gate, y, error);
    }
    const bool has_scale = shared->scale.dense || shared->scale.packed;
    if (status == HC_OK && has_scale)
        status = score(run, mixture, rows, &shared->scale, NULL, 1, from, rounded, share, error);
    if (status == HC_OK) {
        if (has_scale)
            sigmoid(run, rows, share, pairs);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < width; i++) {
                const float part = has_scale ? y[r * width + i] * share[r] : y[r * width + i];
                to[r * width + i] += part;
            }
    }
    hc_free_aligned(gate);
    return status;
}

hc_status hc_run_mixture(const hc_run *run, const hc_mixture *mixture, int64_t rows, const float *from, float *to,
                         hc_error *error) {
    hc_experts given = mixture->experts;
    const int64_t experts = given.experts, numbers = rows * given.used + mixture->groups;
    const int64_t floats = rows * (given.width + 3 * experts + given.used) + experts;
    mixture_memory at;
    at.picked = hc_alloc_aligned(numbers * (int64_t)sizeof *at.picked + floats * (int64_t)sizeof(float));
    if (!at.picked)
        return hc_fail(error, HC_MEMORY, "llm_layers: not enough memory");
    at.groups = at.picked + rows * given.used;
    at.rounded = (float *)(void *)(at.groups + mixture->groups);
    at.scores = at.rounded + rows * given.width;
    at.pairs = at.scores + rows * experts;
    at.shares = at.pairs + 2 * rows * experts;
    at.choice = at.shares + rows * given.used;
    hc_status status =
        score(run, mixture, rows, &mixture->router, mixture->bias, experts, from, at.rounded, at.scores, error);
    if (status == HC_OK) {
        route(run, mixture, rows, &at);
        given.tokens = rows;
        given.x = from;
        given.picked = at.picked;
        given.shares = at.shares;
        given.out = to;
        status = hc_run_experts(run, &given, error);
    }
    if (status == HC_OK && mixture->shared.hidden)
        status = add_shared(run, mixture, rows, from, at.rounded, to, error);
    hc_free_aligned(at.picked);
    return status;
}
