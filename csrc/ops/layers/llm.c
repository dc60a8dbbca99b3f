/* A layer of a language model in one call: its matmuls and the steps between them, without returning to the caller.
 *
 * Memory: some rows of each intermediate result, during the call.
 * Vaswani et al., "Attention Is All You Need", 2017; Touvron et al., "LLaMA", 2023 (arXiv 2302.13971).
 */
#include "ops/layers/latents.h"
#include "ops/layers/steps.h"

#include <string.h>

typedef struct {
    const hc_run *run;
    const hc_llm_layer *layer;
    int64_t rows, q_width, kv_width, out_width;
    int64_t q_row, kv_row; /* values from a row of turned_q, of turned_k and v to the next */
    float *y, *q, *k, *v, *turned_q, *turned_k, *answer, *mapped, *gate, *up, *fused, *mixed;
} llm_job;

static hc_run run_of(const llm_job *job, double work) { return hc_step_run(job->run, work); }

/* to (rows, n) = from (rows, k) @ weight + bias */
static hc_status product(const llm_job *job, hc_llm_weight which, const float *from, int64_t k, float *to, int64_t n,
                         hc_error *error) {
    const hc_llm_layer *layer = job->layer;
    return hc_step_product(job->run, job->rows, &layer->weight[which], layer->bias[which], layer->activations, k, n,
                           from, to, error);
}

static void norm_by(const llm_job *job, int64_t rows, int64_t n, const float *from, hc_llm_norm which, int64_t first,
                    float *to) {
    const hc_llm_layer *layer = job->layer;
    const hc_run run = run_of(job, (double)rows * (double)n);
    hc_run_layer(&run, &(hc_layer){.kind = layer->centered ? HC_LAYER_NORM : HC_LAYER_RMS_NORM,
                                   .rows = rows,
                                   .n = n,
                                   .x = from,
                                   .weight = layer->norm[which] + first,
                                   .bias = layer->norm_bias[which] ? layer->norm_bias[which] + first : NULL,
                                   .y = to,
                                   .epsilon = layer->epsilon});
}

static void norm(const llm_job *job, int64_t rows, int64_t n, const float *from, hc_llm_norm which, float *to) {
    norm_by(job, rows, n, from, which, 0, to);
}

/* Normalizes queries or keys (rows, heads, head_width) in place. */
static void norm_heads(const llm_job *job, int64_t heads, hc_llm_norm which, float *x) {
    const int64_t d = job->layer->head_width;
    if (job->layer->head_norm == HC_LLM_HEADS_TOGETHER)
        norm(job, job->rows, heads * d, x, which, x);
    else if (job->layer->head_norm == HC_LLM_HEADS_ALIKE)
        norm(job, job->rows * heads, d, x, which, x);
    else
        for (int64_t i = 0; i < job->rows * heads; i++)
            norm_by(job, 1, d, x + i * d, which, i % heads * d, x + i * d);
}

/* y = norm(x), or x without such a norm */
static void norm_input(const llm_job *job, const float *x, hc_llm_norm which) {
    const int64_t width = job->layer->width;
    if (job->layer->norm[which])
        norm(job, job->rows, width, x, which, job->y);
    else
        memcpy(job->y, x, (size_t)(job->rows * width) * sizeof *x);
}

static void turn(const llm_job *job, const float *from, int64_t heads, float *to) {
    if (job->layer->cosine) /* otherwise `to` is `from` */
        hc_step_turn(job->run, job->layer, heads, job->layer->head_width, from, to);
}

/* Rotates the heads of q, k and v, or of an answer, for keys and values that are stored rotated. */
static void rotate(const llm_job *job, int64_t heads, float *x) {
    const hc_llm_layer *layer = job->layer;
    if (!layer->turned)
        return;
    const hc_run run = run_of(job, (double)(job->rows * heads) * (double)layer->head_width);
    hc_rotate_heads(&run, job->rows * heads * (layer->head_width / layer->turned), layer->turned, x);
}

/* Copies columns [first, first + n) of rows of `whole` values. */
static void take_columns(int64_t rows, int64_t whole, const float *from, int64_t first, int64_t n, float *to) {
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * n, from + r * whole + first, (size_t)n * sizeof *to);
}

/* Appends the new rows of keys or values, (batch, n, head) -> (token, batch, head). */
static hc_status append(const llm_job *job, const float *new, const hc_packed *packed, float *floats, hc_error *error) {
    const hc_llm_layer *layer = job->layer;
    const int64_t n = layer->n, batch = layer->batch, values = job->kv_width;
    if (!packed) {
        for (int64_t t = 0; t < n; t++)
            for (int64_t b = 0; b < batch; b++)
                memcpy(floats + ((layer->held + t) * batch + b) * values, new + (b * n + t) * values,
                       (size_t)values * sizeof *new);
        return HC_OK;
    }
    hc_packed part = *packed;
    part.shape[0] = n;
    for (int i = 0; i < HC_N_COMPONENTS; i++)
        if (part.components.part[i].data)
            part.components.part[i].data += layer->held * batch * layer->kv_heads * part.components.part[i].row_stride;
    const hc_view x = {(void *)new,
                       HC_F32,
                       4,
                       {n, batch, layer->kv_heads, layer->head_width},
                       {4 * values, 4 * n * values, 4 * layer->head_width, 4},
                       HC_HOST};
    const hc_run run = run_of(job, (double)(job->rows * values));
    return hc_quantize(&run, &x, &(hc_clip){HC_CLIP_ABSMAX, 0}, &part, error);
}

static hc_kept kept_of(const llm_job *job, const hc_packed *packed, const float *floats, const float *new) {
    const hc_llm_layer *layer = job->layer;
    const int64_t heads = layer->kv_heads, each = packed ? 1 : layer->head_width;
    if (layer->both_sides)
        return (hc_kept){NULL, new, {layer->n * job->kv_row, layer->head_width, job->kv_row}};
    return (hc_kept){packed, floats, {heads * each, each, layer->batch * heads * each}};
}

static hc_status attend(const llm_job *job, hc_error *error) {
    const hc_llm_layer *layer = job->layer;
    const int64_t n = layer->n, m = layer->held + n, q = job->q_width, d = q / layer->heads;
    const hc_attention given = {.batch = layer->batch,
                                .heads = layer->heads,
                                .kv_heads = layer->kv_heads,
                                .n = n,
                                .m = m,
                                .width = d,
                                .q = job->turned_q,
                                .out = job->answer,
                                .q_step = {n * job->q_row, d, job->q_row},
                                .out_step = {n * q, d, q},
                                .k = kept_of(job, layer->k, layer->k_floats, job->turned_k),
                                .v = kept_of(job, layer->v, layer->v_floats, job->v),
                                .causal = !layer->both_sides,
                                .window = layer->window,
                                .scale = layer->scale,
                                .cap = layer->cap,
                                .sinks = layer->sinks,
                                .bias = layer->key_bias,
                                .bias_step = layer->key_bias_step,
                                .halves = layer->latents != NULL,
                                .turned = layer->turned};
    const hc_run run = run_of(job, 2.0 * (double)(job->rows * q) * (double)m);
    const hc_status status = hc_attend_all(&run, &given, error);
    if (!layer->latents)
        rotate(job, layer->heads, job->answer);
    else if (status == HC_OK)
        return hc_map_latents(job->run, layer, job->answer, job->mapped, error);
    return status;
}

/* Queries, and the halves of new keys, of attention over latents. */
static hc_status project_latents(const llm_job *job, hc_error *error) {
    const hc_status status =
        hc_project_latents(job->run, job->layer, job->y, job->turned_q, job->turned_k, job->v, error);
    rotate(job, 1, job->turned_k);
    rotate(job, 1, job->v);
    return status;
}

static hc_status project(llm_job *job, hc_error *error) {
    const hc_llm_layer *layer = job->layer;
    const int64_t rows = job->rows, width = layer->width, q = job->q_width, kv = job->kv_width;
    hc_status status;
    if (layer->weight[HC_LLM_QKV].dense || layer->weight[HC_LLM_QKV].packed) {
        status = product(job, HC_LLM_QKV, job->y, width, job->fused, q + 2 * kv, error);
        if (layer->both_sides && !layer->norm[HC_LLM_Q_NORM] && !layer->cosine && !layer->q_factor && !layer->turned) {
            job->turned_q = job->fused; /* attention reads them where they are */
            job->turned_k = job->fused + q;
            job->v = job->turned_k + kv;
            job->q_row = job->kv_row = q + 2 * kv;
            return status;
        }
        take_columns(rows, q + 2 * kv, job->fused, 0, q, job->q);
        take_columns(rows, q + 2 * kv, job->fused, q, kv, job->k);
        take_columns(rows, q + 2 * kv, job->fused, q + kv, kv, job->v);
    } else {
        status = product(job, HC_LLM_Q, job->y, width, job->q, q, error);
        if (status == HC_OK)
            status = product(job, HC_LLM_K, job->y, width, job->k, kv, error);
        if (status == HC_OK)
            status = product(job, HC_LLM_V, job->y, width, job->v, kv, error);
    }
    if (status != HC_OK)
        return status;
    if (layer->norm[HC_LLM_Q_NORM]) {
        norm_heads(job, layer->heads, HC_LLM_Q_NORM, job->q);
        norm_heads(job, layer->kv_heads, HC_LLM_K_NORM, job->k);
    }
    turn(job, job->q, layer->heads, job->turned_q);
    turn(job, job->k, layer->kv_heads, job->turned_k);
    for (int64_t r = 0; layer->q_factor && r < rows; r++)
        for (int64_t i = 0; i < q; i++)
            job->turned_q[r * q + i] *= layer->q_factor[r % layer->n];
    rotate(job, layer->heads, job->turned_q);
    rotate(job, layer->kv_heads, job->turned_k);
    rotate(job, layer->kv_heads, job->v);
    return HC_OK;
}

static hc_status feed_forward(const llm_job *job, hc_error *error) {
    const hc_llm_layer *layer = job->layer;
    const int64_t rows = job->rows, width = layer->width, hidden = layer->hidden;
    const float *from = job->gate, *up = job->up;
    hc_status status;
    if (layer->weight[HC_LLM_GATE_UP].dense || layer->weight[HC_LLM_GATE_UP].packed) {
        status = product(job, HC_LLM_GATE_UP, job->y, width, job->fused, 2 * hidden, error);
        take_columns(rows, 2 * hidden, job->fused, 0, hidden, job->gate);
        take_columns(rows, 2 * hidden, job->fused, hidden, hidden, job->up);
    } else if (!layer->weight[HC_LLM_GATE].dense && !layer->weight[HC_LLM_GATE].packed) {
        status = product(job, HC_LLM_UP, job->y, width, job->up, hidden, error);
        from = job->up;
        up = NULL;
    } else {
        status = product(job, HC_LLM_GATE, job->y, width, job->gate, hidden, error);
        if (status == HC_OK)
            status = product(job, HC_LLM_UP, job->y, width, job->up, hidden, error);
    }
    if (status != HC_OK)
        return status;
    const hc_run run = run_of(job, (double)(rows * hidden));
    hc_run_layer(&run,
                 &(hc_layer){.kind = layer->gate, .rows = rows, .n = hidden, .x = from, .weight = up, .y = job->gate});
    return product(job, HC_LLM_DOWN, job->gate, hidden, job->y, width, error);
}

/* to = after(x + residual post(y)) */
static void add(const llm_job *job, const float *x, hc_llm_norm post, hc_llm_norm after, float *to) {
    const int64_t width = job->layer->width, values = job->rows * width;
    const float residual = job->layer->residual;
    if (job->layer->norm[post])
        norm(job, job->rows, width, job->y, post, job->y);
    for (int64_t i = 0; i < values; i++)
        to[i] = x[i] + residual * job->y[i];
    if (job->layer->norm[after])
        norm(job, job->rows, width, to, after, to);
}

static hc_status run_steps(llm_job *job, hc_error *error) {
    const hc_llm_layer *layer = job->layer;
    norm_input(job, layer->x, HC_LLM_NORM);
    hc_status status = layer->latents ? project_latents(job, error) : project(job, error);
    if (status == HC_OK && !layer->both_sides)
        status = append(job, job->turned_k, layer->k, layer->k_floats, error);
    if (status == HC_OK && !layer->both_sides)
        status = append(job, job->v, layer->v, layer->v_floats, error);
    if (status == HC_OK)
        status = attend(job, error);
    if (status == HC_OK)
        status = product(job, HC_LLM_OUT, job->mapped, job->out_width, job->y, layer->width, error);
    if (status != HC_OK)
        return status;
    add(job, layer->x, HC_LLM_POST, HC_LLM_AFTER, layer->out);
    if (layer->mixture) {
        norm_input(job, layer->out, HC_LLM_FEED_NORM);
        status = hc_run_mixture(job->run, layer->mixture, job->rows, job->y, job->mixed, error);
        job->y = job->mixed;
        if (status == HC_OK)
            add(job, layer->out, HC_LLM_FEED_POST, HC_LLM_FEED_AFTER, layer->out);
        return status;
    }
    if (!layer->weight[HC_LLM_DOWN].dense && !layer->weight[HC_LLM_DOWN].packed) /* experts follow */
        return HC_OK;
    const bool shares = layer->parallel && !layer->norm[HC_LLM_FEED_NORM];
    norm_input(job, layer->parallel ? layer->x : layer->out, shares ? HC_LLM_NORM : HC_LLM_FEED_NORM);
    status = feed_forward(job, error);
    if (status == HC_OK)
        add(job, layer->out, HC_LLM_FEED_POST, HC_LLM_FEED_AFTER, layer->out);
    return status;
}

hc_status hc_run_llm_layer(const hc_run *run, const hc_llm_layer *layer, hc_error *error) {
    llm_job job = {.run = run, .layer = layer, .rows = layer->batch * layer->n};
    const hc_latents *latents = layer->latents;
    job.q_width = layer->heads * (latents ? hc_latent_width(latents) : layer->head_width);
    job.kv_width = layer->kv_heads * layer->head_width;
    job.out_width = latents ? layer->heads * latents->value : job.q_width;
    job.q_row = job.q_width;
    job.kv_row = job.kv_width;
    if (job.rows <= 0)
        return HC_OK;
    float **const part[] = {&job.y,      &job.q,      &job.k,    &job.v,  &job.turned_q, &job.turned_k,
                            &job.answer, &job.mapped, &job.gate, &job.up, &job.fused,    &job.mixed};
    const int64_t size[] = {layer->width,
                            latents ? 0 : job.q_width,
                            job.kv_width,
                            job.kv_width,
                            layer->cosine ? job.q_width : 0,
                            layer->cosine ? job.kv_width : 0,
                            job.q_width,
                            latents ? job.out_width : 0,
                            layer->hidden,
                            layer->hidden,
                            hc_max(latents ? 0 : job.q_width + 2 * job.kv_width, 2 * layer->hidden),
                            layer->mixture ? layer->width : 0};
    enum { PARTS = sizeof size / sizeof *size, LINE = 16 };
    int64_t total = 0;
    for (int i = 0; i < PARTS; i++)
        total += hc_round_up(job.rows * size[i], LINE);
    float *memory = hc_alloc_aligned(total * (int64_t)sizeof *memory);
    if (!memory)
        return hc_fail(error, HC_MEMORY, "llm_layer: not enough memory");
    float *next = memory;
    for (int i = 0; i < PARTS; i++) {
        *part[i] = next;
        next += hc_round_up(job.rows * size[i], LINE);
    }
    job.mapped = latents ? job.mapped : job.answer;
    if (!layer->cosine) {
        job.turned_q = job.q;
        job.turned_k = job.k;
    }
    const hc_status status = run_steps(&job, error);
    hc_free_aligned(memory);
    return status;
}
