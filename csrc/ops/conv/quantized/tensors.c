/* Tensors of a chain (chain.h): memory, codes, layouts, last steps and the largest values of windows. */
#include "base/convert.h"
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/conv/quantized/chain.h"

#include <string.h>

enum { ZERO = 128, SLACK = 64, ROWS = 16 };

hc_room *hc_chain_room(hc_chain *chain, int64_t bytes) {
    hc_room *best = NULL;
    for (int i = 0; i < chain->n_rooms; i++) {
        hc_room *one = &chain->rooms[i];
        if (!one->used && one->bytes >= bytes && (!best || one->bytes < best->bytes))
            best = one;
    }
    if (chain->n_rooms < chain->most_rooms ? !best || best->bytes > 8 * bytes : !best) {
        hc_room *free = NULL;
        for (int i = 0; i < chain->n_rooms && chain->n_rooms == chain->most_rooms; i++)
            free = chain->rooms[i].used ? free : &chain->rooms[i];
        void *data = hc_alloc_aligned(bytes);
        if (!data)
            return NULL;
        if (free)
            hc_free_aligned(free->data);
        best = free ? free : &chain->rooms[chain->n_rooms++];
        *best = (hc_room){.data = data, .bytes = bytes};
    }
    best->used = true;
    return best;
}

void hc_tensor_leave_codes(hc_tensor *t) {
    if (t->of_codes)
        t->of_codes->used = false;
    t->of_codes = NULL;
    t->codes = NULL;
}

void hc_tensor_leave(hc_tensor *t) {
    hc_tensor_leave_codes(t);
    if (t->of_values)
        t->of_values->used = false;
    t->of_values = NULL;
    t->values = NULL;
}

hc_view hc_pixels_view(void *data, int64_t channels, int64_t height, int64_t width) {
    const int64_t size = sizeof(float), pixel = channels * size;
    return (hc_view){.data = data,
                     .dtype = HC_F32,
                     .ndim = 4,
                     .shape = {1, channels, height, width},
                     .strides = {height * width * pixel, size, width * pixel, pixel}};
}

static void around_task(void *context, int64_t line, int thread) {
    (void)thread;
    const hc_tensor *t = context;
    const int64_t all = hc_codes_line(t), own = t->width * t->channels, h = line - t->around[0];
    uint8_t *to = t->codes + line * all;
    if (h < 0 || h >= t->height) {
        memset(to, ZERO, (size_t)all);
        return;
    }
    const int64_t left = t->around[2] * t->channels;
    memset(to, ZERO, (size_t)left);
    memset(to + left + own, ZERO, (size_t)(all - left - own));
}

bool hc_tensor_has_codes(hc_chain *chain, hc_tensor *t) {
    const int64_t lines = t->height + t->around[0] + t->around[1], bytes = lines * hc_codes_line(t);
    t->of_codes = hc_chain_room(chain, bytes + SLACK);
    if (!t->of_codes)
        return false;
    t->codes = t->of_codes->data;
    memset(t->codes + bytes, 0, SLACK);
    for (int64_t line = 0; line < lines; line++)
        around_task(t, line, 0);
    return true;
}

bool hc_tensor_has_values(hc_chain *chain, hc_tensor *t) {
    t->of_values = hc_chain_room(chain, t->channels * t->height * t->width * (int64_t)sizeof(float));
    t->values = t->of_values ? t->of_values->data : NULL;
    t->view = hc_pixels_view(t->values, t->channels, t->height, t->width);
    return t->values;
}

typedef struct {
    const hc_run *run;
    hc_tensor *t;
} hc_tensor_job;

static void round_task(void *context, int64_t h, int thread) {
    (void)thread;
    const hc_tensor_job *job = context;
    const hc_tensor *t = job->t;
    const int64_t n = t->width * t->channels;
    HC_PICK(codes_s8, job->run)(t->values + h * n, n, t->scale, HC_PANEL_U8, hc_codes_at(t, h));
}

void hc_tensor_round(const hc_chain *chain, hc_tensor *t) {
    hc_tensor_job job = {chain->run, t};
    hc_parallel(chain->run->n_threads, t->height, round_task, &job);
}

static void turn_task(void *context, int64_t h, int thread) {
    (void)thread;
    const hc_tensor_job *job = context;
    const hc_tensor *t = job->t;
    const hc_view *v = &t->view;
    float *to = t->values + h * t->width * t->channels;
    const char *from = (const char *)v->data + h * v->strides[2];
    for (int64_t w = 0; w < t->width; w++)
        for (int64_t c = 0; c < t->channels; c++)
            memcpy(to + w * t->channels + c, from + w * v->strides[3] + c * v->strides[1], sizeof(float));
}

bool hc_tensor_turn(hc_chain *chain, hc_tensor *t) {
    const hc_view view = t->view;
    if (!hc_tensor_has_values(chain, t))
        return false;
    t->view = view;
    hc_tensor_job job = {chain->run, t};
    hc_parallel(chain->run->n_threads, t->height, turn_task, &job);
    t->view = hc_pixels_view(t->values, t->channels, t->height, t->width);
    return true;
}

typedef struct {
    const hc_run *run;
    const hc_tensor *t;
    float *to;
} hc_planes_job;

/* ROWS pixels of all channels, as planes. */
static void planes_task(void *context, int64_t task, int thread) {
    (void)thread;
    const hc_planes_job *job = context;
    const hc_tensor *t = job->t;
    const int64_t pixels = t->height * t->width, first = task * ROWS, n = hc_min(ROWS, pixels - first);
    HC_PICK(pack_x32, job->run)
    (t->values + first * t->channels, t->channels * (int64_t)sizeof(float), (int)n, t->channels, job->to + first,
     (int)pixels, 0);
}

void hc_tensor_planes(const hc_chain *chain, const hc_tensor *t, float *to) {
    hc_planes_job job = {chain->run, t, to};
    hc_parallel(chain->run->n_threads, hc_ceil_div(t->height * t->width, ROWS), planes_task, &job);
}

typedef struct {
    const hc_run *run;
    const hc_tensor *t;
    const hc_link_steps *steps;
    const float *plus;
    uint32_t *largest; /* of each line */
} hc_finish_job;

static void finish_task(void *context, int64_t h, int thread) {
    (void)thread;
    const hc_finish_job *job = context;
    const int64_t depth = job->t->channels, at = h * job->t->width * depth;
    job->largest[h] = HC_PICK(link_f32, job->run)(job->t->width, depth, job->t->values + at, depth, job->steps, NULL,
                                                  job->plus ? job->plus + at : NULL, depth, 0);
}

bool hc_tensor_finish(const hc_chain *chain, hc_tensor *t, const hc_link_steps *steps, const float *plus) {
    uint32_t *largest = hc_alloc_aligned(t->height * (int64_t)sizeof *largest);
    if (!largest)
        return false;
    hc_finish_job job = {chain->run, t, steps, plus, largest};
    hc_parallel(chain->run->n_threads, t->height, finish_task, &job);
    t->largest = 0;
    for (int64_t h = 0; h < t->height; h++)
        t->largest = largest[h] > t->largest ? largest[h] : t->largest;
    hc_free_aligned(largest);
    return true;
}

typedef struct {
    const hc_tensor *x;
    hc_tensor *y;
    const hc_window *window;
    int64_t size[2];
    hc_pool_f32_fn *kernel;
} hc_pool_job;

static void pool_task(void *context, int64_t p, int thread) {
    (void)thread;
    const hc_pool_job *job = context;
    const hc_tensor *x = job->x;
    const hc_window *window = job->window;
    const int64_t depth = x->channels, top = p * window->stride[0] - window->pad_before[0];
    const int64_t first = hc_max(top, 0), end = hc_min(top + job->size[0], x->height);
    float *restrict to = job->y->values + p * job->y->width * depth;
    for (int64_t q = 0; q < job->y->width; q++, to += depth) {
        const int64_t left = q * window->stride[1] - window->pad_before[1];
        const int64_t from = hc_max(left, 0), until = hc_min(left + job->size[1], x->width);
        job->kernel(end - first, until - from, x->values + (first * x->width + from) * depth, x->width * depth, depth,
                    to);
    }
}

void hc_tensor_pool(const hc_chain *chain, const hc_tensor *x, hc_tensor *y, const hc_window *window,
                    const int64_t size[2]) {
    hc_pool_job job = {x, y, window, {size[0], size[1]}, HC_PICK(pool_f32, chain->run)};
    hc_parallel(chain->run->n_threads, y->height, pool_task, &job);
}
