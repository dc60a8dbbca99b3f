/* The layers of transformers, against their equations, one value at a time. */
#include "kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define D PRId64

static float sum_of(int64_t n, const float *x) {
    float acc[16] = {0};
    for (int64_t i = 0; i < n; i++)
        acc[i % 16] += x[i];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            acc[i] += acc[i + half];
    return acc[0];
}

static float sum_of_products(int64_t n, const float *a, const float *b) {
    float acc[16] = {0};
    for (int64_t i = 0; i < n; i++)
        acc[i % 16] += a[i] * b[i];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            acc[i] += acc[i + half];
    return acc[0];
}

static float dot_of(int64_t n, const float *a, const float *b) {
    float acc[16] = {0};
    for (int64_t i = 0; i < n; i++)
        acc[i % 16] = fmaf(a[i], b[i], acc[i % 16]);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            acc[i] += acc[i + half];
    return acc[0];
}

static float exp_of(float x) {
    if (x != x)
        return x;
    const float t = x < -104 ? -104 : x > 89 ? 89 : x;
    const float whole = fmaf(t, 1.44269504f, 12582912) - 12582912;
    const float r = fmaf(whole, 2.12194440e-4f, fmaf(whole, -0.693359375f, t));
    static const float terms[] = {
        8.379030041396618e-3f, 4.166477546095848e-2f, 0.16666364669799805f, 0.5000000596046448f, 1, 1};
    float p = 1.4061316614970565e-3f;
    for (int i = 0; i < 6; i++)
        p = fmaf(p, r, terms[i]);
    const int n = (int)whole, half = n >> 1;
    return p * ldexpf(1, half) * ldexpf(1, n - half);
}

static float *drawn(int64_t n, float_kind kind) {
    float *x = items(n, 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = draw_below(3) ? draw_float(kind) : (float)draw_below(17) / 4 - 2;
    return x;
}

static void norm_definition(int64_t rows, int64_t n, const float *x, bool centered, float epsilon, const float *weight,
                            const float *bias, float *y) {
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        const float mean = centered ? sum_of(n, x) / (float)n : 0;
        for (int64_t i = 0; i < n; i++)
            y[i] = centered ? x[i] - mean : x[i];
        const float factor = 1 / sqrtf(sum_of_products(n, y, y) / (float)n + epsilon);
        for (int64_t i = 0; i < n; i++) {
            y[i] *= factor;
            y[i] = weight ? y[i] * weight[i] : y[i];
            y[i] = bias ? y[i] + bias[i] : y[i];
        }
    }
}

static void norm_case(const hc_kernel *kernel, int64_t rows, int64_t n, bool centered, int vectors, float_kind kind) {
    begin("rows %" D ", n %" D ", centered %d, %d vectors, %s", rows, n, centered, vectors, float_kind_name(kind));
    const float *x = drawn(rows * n, kind), *weight = vectors > 0 ? drawn(n, kind) : NULL;
    const float *bias = vectors > 1 ? drawn(n, kind) : NULL;
    float *wanted = drawn(rows * n + 3, PLAIN), *got = copy_of(wanted, rows * n + 3, 4);
    norm_definition(rows, n, x, centered, 1e-5f, weight, bias, wanted);
    kernel->fn.norm(rows, n, x, centered, 1e-5f, weight, bias, got);
    same("y", F32, got, wanted, rows * n + 3);
    BENCH(norm_definition(rows, n, x, centered, 1e-5f, weight, bias, wanted),
          kernel->fn.norm(rows, n, x, centered, 1e-5f, weight, bias, got));
}

void check_norm(const hc_kernel *kernel) {
    for (int64_t n = 1; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            norm_case(kernel, 1 + draw_below(3), n, draw_below(2), (int)draw_below(3), (float_kind)kind);
    usual();
    norm_case(kernel, 4, 576, false, 1, PLAIN);
}

static void softmax_definition(int64_t rows, int64_t n, const float *x, float *y) {
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        float largest = -INFINITY;
        for (int64_t i = 0; i < n; i++)
            largest = x[i] > largest ? x[i] : largest;
        for (int64_t i = 0; i < n; i++)
            y[i] = exp_of(x[i] - largest);
        const float part = 1 / sum_of(n, y);
        for (int64_t i = 0; i < n; i++)
            y[i] *= part;
    }
}

static void softmax_case(const hc_kernel *kernel, int64_t rows, int64_t n, float_kind kind) {
    begin("rows %" D ", n %" D ", %s", rows, n, float_kind_name(kind));
    const float *x = drawn(rows * n, kind);
    float *wanted = drawn(rows * n + 3, PLAIN), *got = copy_of(wanted, rows * n + 3, 4);
    softmax_definition(rows, n, x, wanted);
    kernel->fn.softmax(rows, n, x, got);
    same("y", F32, got, wanted, rows * n + 3);
    BENCH(softmax_definition(rows, n, x, wanted), kernel->fn.softmax(rows, n, x, got));
}

void check_softmax(const hc_kernel *kernel) {
    for (int64_t n = 1; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            softmax_case(kernel, 1 + draw_below(40), n, (float_kind)kind);
    usual();
    softmax_case(kernel, 4, 1024, PLAIN);
}

/* gelu_erf as heterocompute/reference/layers.py has it. */
static float gelu_erf_of(float x) {
    static const float log_part[] = {
        -1.4269686543499915e-09f, -5.59927606502697e-08f,   -9.683071766630746e-07f, -9.63003003562335e-06f,
        -5.906076330575161e-05f,  -0.00020291727560106665f, -2.853036221495131e-06f, 0.004824912175536156f,
        0.036362092941999435f,    -0.3183022141456604f,     0.7978853583335876f,     -0.6931471824645996f,
    };
    const float m = -fabsf(x) < -6.5f ? -6.5f : -fabsf(x);
    float p = log_part[0];
    for (int i = 1; i < 12; i++)
        p = fmaf(p, m, log_part[i]);
    return fmaf(m, m > -6.5f ? exp_of(p) : 0, x < 0 ? 0 : x);
}

static void gate_definition(int64_t n, hc_gate_kind kind, const float *x, const float *up, float *y) {
    for (int64_t i = 0; i < n; i++) {
        const float at = kind == HC_GATE_GELU ? 1.5957691216f * (x[i] + 0.044715f * x[i] * x[i] * x[i]) : x[i];
        if (kind == HC_GATE_ERF)
            y[i] = gelu_erf_of(x[i]);
        else
            y[i] = x[i] / (1 + exp_of(-at));
        y[i] = up ? y[i] * up[i] : y[i];
    }
}

static void gate_case(const hc_kernel *kernel, int64_t n, hc_gate_kind kind, bool multiplied, float_kind floats) {
    begin("n %" D ", kind %d, up %d, %s", n, (int)kind, multiplied, float_kind_name(floats));
    const float *x = drawn(n, floats), *up = multiplied ? drawn(n, floats) : NULL;
    float *wanted = drawn(n + 3, PLAIN), *got = copy_of(wanted, n + 3, 4);
    gate_definition(n, kind, x, up, wanted);
    kernel->fn.gate(n, kind, x, up, got);
    same("y", F32, got, wanted, n + 3);
    BENCH(gate_definition(n, kind, x, up, wanted), kernel->fn.gate(n, kind, x, up, got));
}

void check_gate(const hc_kernel *kernel) {
    for (int64_t n = 0; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            for (int form = 0; form < 6; form++)
                gate_case(kernel, n, (hc_gate_kind)(form % 3), form / 3, (float_kind)kind);
    usual();
    gate_case(kernel, 1536, HC_GATE_GELU, true, PLAIN);
    gate_case(kernel, 1536, HC_GATE_ERF, false, PLAIN);
}

static void rope_definition(const hc_rope_form *form, int64_t first, int64_t rows, const float *x, const float *cosine,
                            const float *sine, float *y) {
    for (int64_t r = first; r < first + rows; r++)
        for (int64_t i = 0; i < form->width; i++) {
            const bool second = form->pairs ? i % 2 : i >= form->half;
            const int64_t pair = form->pairs ? i / 2 : i % form->half;
            const int64_t turn = r / form->repeat % form->turns * form->half + pair;
            const int64_t other = form->pairs ? i ^ 1 : second ? i - form->half : i + form->half;
            const float *row = x + r * form->width;
            if (i >= 2 * form->half)
                y[r * form->width + i] = row[i];
            else if (second)
                y[r * form->width + i] = row[other] * sine[turn] + row[i] * cosine[turn];
            else
                y[r * form->width + i] = row[i] * cosine[turn] - row[other] * sine[turn];
        }
}

static void rope_case(const hc_kernel *kernel, int64_t rows, int64_t half, int64_t more, bool pairs, float_kind kind) {
    begin("rows %" D ", half %" D ", more %" D ", pairs %d, %s", rows, half, more, pairs, float_kind_name(kind));
    const hc_rope_form form = {2 * half + more, half, 1 + draw_below(3), 1 + draw_below(4), pairs};
    const int64_t first = draw_below(3), n = (first + rows) * form.width;
    const float *x = drawn(n, kind), *cosine = drawn(form.turns * half, PLAIN), *sine = drawn(form.turns * half, PLAIN);
    float *wanted = drawn(n + 3, PLAIN), *got = copy_of(wanted, n + 3, 4);
    rope_definition(&form, first, rows, x, cosine, sine, wanted);
    kernel->fn.rope(&form, first, rows, x, cosine, sine, got);
    same("y", F32, got, wanted, n + 3);
    BENCH(rope_definition(&form, first, rows, x, cosine, sine, wanted),
          kernel->fn.rope(&form, first, rows, x, cosine, sine, got));
}

void check_rope(const hc_kernel *kernel) {
    for (int64_t half = 1; half < 36; half++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            rope_case(kernel, draw_below(5), half, draw_below(4), draw_below(2), (float_kind)kind);
    usual();
    rope_case(kernel, 12, 32, 0, false, PLAIN);
}

/* Value i of a key. */
static float key_value(const hc_attend_keys *keys, int64_t key, int64_t i) {
    if (!keys->codes)
        return keys->data[key * keys->ld + i];
    float scale;
    memcpy(&scale, keys->scales + key * keys->scales_ld + i / keys->group * 4, sizeof scale);
    return (float)keys->codes[key * keys->ld + i] * scale;
}

static void attend_definition(const hc_attend *some) {
    float *key = items(some->width, 4);
    for (int64_t r = 0; r < some->rows; r++) {
        const int64_t low = some->low[r], high = some->high[r];
        float s[HC_KEYS] = {0}, p[HC_KEYS] = {0}, largest = some->largest[r];
        if (low >= high)
            continue;
        for (int64_t j = low; j < high; j++) {
            for (int64_t i = 0; i < some->width; i++)
                key[i] = key_value(&some->k, j, i);
            s[j] = dot_of(some->width, some->q + r * some->q_ld, key) * some->scale;
            if (some->cap > 0)
                s[j] = some->cap * (1 - 2 / (exp_of(2 * (s[j] / some->cap)) + 1));
            largest = s[j] > largest ? s[j] : largest;
        }
        for (int64_t j = low; j < high; j++)
            p[j] = exp_of(s[j] - largest);
        const float factor = exp_of(some->largest[r] - largest);
        some->sum[r] = some->sum[r] * factor + sum_of(HC_KEYS, p);
        some->largest[r] = largest;
        for (int64_t i = 0; i < some->width; i++) {
            float *a = some->answer + r * some->width + i;
            *a *= factor;
            for (int64_t j = low; j < high; j++)
                *a = fmaf(p[j], key_value(&some->v, j, i), *a);
        }
    }
}

/* Keys as floats, or as codes with one scale per group. */
static hc_attend_keys drawn_keys(int64_t keys, int64_t width, bool coded, float_kind kind) {
    const int64_t ld = width + draw_below(3);
    if (!coded)
        return (hc_attend_keys){.data = drawn((keys - 1) * ld + width, kind), .ld = ld};
    const int64_t group = draw_below(2) ? 16 * (1 + draw_below(4)) : hc_round_up(width, 16);
    const int64_t groups = hc_ceil_div(width, group), step = 4 * groups + draw_below(3);
    int8_t *codes = items((keys - 1) * ld + width, 1);
    uint8_t *scales = items((keys - 1) * step + 4 * groups, 1);
    for (int64_t i = 0; i < (keys - 1) * ld + width; i++)
        codes[i] = (int8_t)(draw_below(256) - 128);
    const float *drawn_scales = drawn(keys * groups, kind);
    for (int64_t j = 0; j < keys; j++)
        memcpy(scales + j * step, drawn_scales + j * groups, (size_t)groups * 4);
    return (hc_attend_keys){.codes = codes, .scales = scales, .ld = ld, .scales_ld = step, .group = group};
}

static void attend_case(hc_attend_fn *attend, int64_t rows, int64_t width, int64_t keys, float cap, float_kind kind,
                        bool k_coded, bool v_coded) {
    begin("rows %" D ", width %" D ", keys %" D ", cap %g, %s, codes %d %d", rows, width, keys, (double)cap,
          float_kind_name(kind), k_coded, v_coded);
    const int64_t q_ld = width + draw_below(3);
    int32_t *low = items(rows, 4), *high = items(rows, 4);
    for (int64_t r = 0; r < rows; r++) {
        const bool as_before = r > 0 && draw_below(2);
        low[r] = as_before ? low[r - 1] : draw_below(2) ? 0 : (int32_t)draw_below((uint32_t)keys);
        high[r] = as_before ? high[r - 1] : draw_below(2) ? (int32_t)keys : (int32_t)draw_below((uint32_t)keys + 1);
    }
    float *state = drawn(rows, PLAIN), *sum = drawn(rows, PLAIN), *answer = drawn(rows * width + 3, PLAIN);
    for (int64_t r = 0; r < rows; r++)
        if (draw_below(2))
            state[r] = -INFINITY, sum[r] = 0;
    hc_attend some = {.rows = rows, .width = width, .q_ld = q_ld, .cap = cap, .ahead = draw_below(100)};
    some.q = drawn((rows - 1) * q_ld + width, kind);
    some.k = drawn_keys(keys, width, k_coded, kind);
    some.v = drawn_keys(keys, width, v_coded, kind);
    some.low = low, some.high = high, some.scale = 0.3f;
    hc_attend other = some;
    some.largest = state, some.sum = sum, some.answer = answer;
    other.largest = copy_of(state, rows, 4), other.sum = copy_of(sum, rows, 4);
    other.answer = copy_of(answer, rows * width + 3, 4);
    attend_definition(&some);
    attend(&other);
    same("largest", F32, other.largest, some.largest, rows);
    same("sum", F32, other.sum, some.sum, rows);
    same("answer", F32, other.answer, some.answer, rows * width + 3);
    BENCH(attend_definition(&some), attend(&other));
}

static void attend_cases(hc_attend_fn *attend, bool k_coded, bool v_coded) {
    FOR_EACH(int64_t, width, 1, 5, 16, 31, 63, 64, 65, 128, 130)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++) {
        attend_case(attend, 1 + draw_below(6), *width, 1 + draw_below(64), 0, (float_kind)kind, k_coded, v_coded);
        attend_case(attend, 1 + draw_below(4), *width, 64, 2, (float_kind)kind, k_coded, v_coded);
    }
    usual();
    attend_case(attend, 12, 64, 64, 0, PLAIN, k_coded, v_coded);
}

void check_attend(const hc_kernel *kernel) { attend_cases(kernel->fn.attend, false, false); }

void check_attend_codes(const hc_kernel *kernel) {
    for (int coded = 0; coded < 4; coded++)
        attend_cases(kernel->fn.attend_codes, coded & 1, coded & 2);
}

/* Element i of row r at i * HC_QUERIES + r; garbage in the lanes beyond the rows. */
static float *in_lanes(int64_t rows, int64_t width, const float *x, int64_t ld) {
    float *y = drawn(width * HC_QUERIES, PLAIN);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            y[i * HC_QUERIES + r] = x[r * ld + i];
    return y;
}

static void attend_block_case(hc_attend_fn *attend, int64_t rows, int64_t width, int64_t keys, float cap, bool causal,
                              float_kind kind) {
    begin("rows %" D ", width %" D ", keys %" D ", cap %g, causal %d, %s", rows, width, keys, (double)cap, causal,
          float_kind_name(kind));
    int32_t *low = items(HC_QUERIES, 4), *high = items(HC_QUERIES, 4);
    const int32_t first = (int32_t)draw_below((uint32_t)keys + 1), seen = (int32_t)draw_below((uint32_t)keys + 1);
    for (int32_t r = 0; r < HC_QUERIES; r++) {
        low[r] = r < rows && causal && seen < first + r ? (int32_t)hc_min(keys, first + r - seen) : 0;
        high[r] = r >= rows ? 0 : causal ? (int32_t)hc_min(keys, first + r) : (int32_t)keys;
    }
    float *state = drawn(HC_QUERIES, PLAIN), *sum = drawn(HC_QUERIES, PLAIN);
    float *answer = drawn(HC_QUERIES * width, PLAIN);
    for (int64_t r = 0; r < HC_QUERIES; r++)
        if (r >= rows || draw_below(2))
            state[r] = -INFINITY, sum[r] = 0;
    hc_attend some = {.rows = rows, .width = width, .q_ld = width, .cap = cap, .ahead = draw_below(100)};
    some.q = drawn(HC_QUERIES * width, kind);
    some.k = drawn_keys(keys, width, false, kind);
    some.v = drawn_keys(keys, width, false, kind);
    some.low = low, some.high = high, some.scale = 0.3f;
    hc_attend other = some;
    some.largest = state, some.sum = sum, some.answer = answer;
    other.largest = copy_of(state, HC_QUERIES, 4), other.sum = copy_of(sum, HC_QUERIES, 4);
    other.q = in_lanes(rows, width, some.q, width);
    other.answer = in_lanes(rows, width, answer, width);
    attend_definition(&some);
    attend(&other);
    float *got = copy_of(answer, HC_QUERIES * width, 4);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            got[r * width + i] = other.answer[i * HC_QUERIES + r];
    same("largest", F32, other.largest, some.largest, rows);
    same("sum", F32, other.sum, some.sum, rows);
    same("answer", F32, got, some.answer, rows * width);
    BENCH(attend_definition(&some), attend(&other));
}

void check_attend_block(const hc_kernel *kernel) {
    hc_attend_fn *attend = kernel->fn.attend_block;
    FOR_EACH(int64_t, width, 1, 5, 16, 31, 63, 64, 65, 128, 130)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        for (int causal = 0; causal < 2; causal++) {
            attend_block_case(attend, 1 + draw_below(16), *width, 1 + draw_below(64), 0, causal, (float_kind)kind);
            attend_block_case(attend, 1 + draw_below(16), *width, 64, 2, causal, (float_kind)kind);
        }
    usual();
    attend_block_case(attend, 16, 64, 64, 0, false, PLAIN);
}

static float largest_of_window(const hc_pool_plane *plane, int64_t p, int64_t q) {
    float most = -INFINITY;
    for (int64_t s = 0; s < plane->size[1]; s++) {
        const int64_t k = q * plane->stride[1] + s - plane->left;
        float column = -INFINITY;
        for (int64_t r = 0; r < plane->size[0] && k >= 0 && k < plane->width; r++) {
            const int64_t h = p * plane->stride[0] + r - plane->top;
            const float x = h >= 0 && h < plane->height ? plane->x[h * plane->width + k] : -INFINITY;
            if (x > column || isnan(x))
                column = x;
        }
        if (column > most || isnan(column))
            most = column;
    }
    return most;
}

static float mean_of_window(const hc_pool_plane *plane, int64_t p, int64_t q) {
    double sum = 0;
    for (int64_t r = 0; r < plane->size[0]; r++)
        for (int64_t s = 0; s < plane->size[1]; s++) {
            const int64_t h = p * plane->stride[0] + r - plane->top, k = q * plane->stride[1] + s - plane->left;
            if (h >= 0 && h < plane->height && k >= 0 && k < plane->width)
                sum += (double)plane->x[h * plane->width + k];
        }
    return (float)(sum / (double)(plane->size[0] * plane->size[1]));
}

static void pool_case(hc_pool_max_fn *pool, bool means, int64_t height, int64_t width, int64_t before, int64_t size,
                      int64_t stride, int64_t down, int64_t n, float_kind kind) {
    begin("%" D " x %" D " from %" D ", windows of %" D " / %" D ", %" D " x %" D " answers, %s", height, width, before,
          size, stride, down, n, float_kind_name(kind));
    const int64_t work =
        means ? hc_pool_mean_rows(height, size) * hc_pool_mean_work(n, size, stride) : hc_pool_work(n, size, stride);
    const hc_pool_plane defined = {.x = floats(height * width, kind),
                                   .height = height,
                                   .width = width,
                                   .top = before,
                                   .left = before,
                                   .size = {size, size},
                                   .stride = {stride, stride},
                                   .down = down,
                                   .n = n,
                                   .work = floats(work, kind),
                                   .c = floats(down * n, kind)};
    float *got = copy_of(defined.c, down * n, 4);
    for (int64_t i = 0; i < down * n; i++)
        defined.c[i] = means ? mean_of_window(&defined, i / n, i % n) : largest_of_window(&defined, i / n, i % n);
    hc_pool_plane plane = defined;
    plane.c = got;
    pool(&plane);
    same("c", F32, got, defined.c, down * n);
    BENCH((means ? hc_pool_mean_scalar : hc_pool_max_scalar)(&defined), pool(&plane));
}

static void pool_cases(hc_pool_max_fn *pool, bool means) {
    FOR_EACH(int64_t, width, 1, 2, 7, 8, 9, 16, 17, 40)
    for (int64_t stride = 1; stride <= 3; stride++)
        for (int64_t before = 0; before <= 2; before++)
            pool_case(pool, means, 5, *width, before, 3, stride, (4 + 2 * before) / stride + 1,
                      (*width - 1 + 2 * before) / stride + 1, PLAIN);
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        for (int64_t stride = 1; stride <= 2; stride++)
            pool_case(pool, means, 4, 37, 1, 2, stride, 3, 38 / stride, (float_kind)kind);
    pool_case(pool, means, 1, 3, 40, 2, 1, 3, 44, PLAIN); /* windows of padding */
    pool_case(pool, means, 2, 3, 3, 2, 1, 2, 2, PLAIN);
    pool_case(pool, means, 9, 11, 2, 5, 7, 2, 2, PLAIN); /* gaps between windows */
    usual();
    pool_case(pool, means, 28, 28, 1, 3, 2, 14, 14, PLAIN);
}

void check_pool_max(const hc_kernel *kernel) { pool_cases(kernel->fn.pool_max, false); }

void check_pool_mean(const hc_kernel *kernel) { pool_cases(kernel->fn.pool_mean, true); }
