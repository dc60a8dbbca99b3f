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

static float exp_of(float x) {
    if (x != x)
        return x;
    const float t = x < -104 ? -104 : x > 89 ? 89 : x;
    const float whole = rintf(t * 1.44269504f), r = (t - whole * 0.693359375f) - whole * -2.12194440e-4f;
    static const float terms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                                  5.0000001201e-1f};
    float p = 1.9875691500e-4f;
    for (int i = 0; i < 5; i++)
        p = p * r + terms[i];
    p = p * (r * r) + r + 1;
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
        const float sum = sum_of(n, y);
        for (int64_t i = 0; i < n; i++)
            y[i] /= sum;
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
            softmax_case(kernel, 1 + draw_below(3), n, (float_kind)kind);
    usual();
    softmax_case(kernel, 4, 1024, PLAIN);
}

static void gate_definition(int64_t n, bool gelu, const float *x, const float *up, float *y) {
    for (int64_t i = 0; i < n; i++) {
        const float at = gelu ? 1.5957691216f * (x[i] + 0.044715f * x[i] * x[i] * x[i]) : x[i];
        y[i] = x[i] / (1 + exp_of(-at));
        y[i] = up ? y[i] * up[i] : y[i];
    }
}

static void gate_case(const hc_kernel *kernel, int64_t n, bool gelu, bool multiplied, float_kind kind) {
    begin("n %" D ", gelu %d, up %d, %s", n, gelu, multiplied, float_kind_name(kind));
    const float *x = drawn(n, kind), *up = multiplied ? drawn(n, kind) : NULL;
    float *wanted = drawn(n + 3, PLAIN), *got = copy_of(wanted, n + 3, 4);
    gate_definition(n, gelu, x, up, wanted);
    kernel->fn.gate(n, gelu, x, up, got);
    same("y", F32, got, wanted, n + 3);
    BENCH(gate_definition(n, gelu, x, up, wanted), kernel->fn.gate(n, gelu, x, up, got));
}

void check_gate(const hc_kernel *kernel) {
    for (int64_t n = 0; n < 40; n++)
        for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
            for (int form = 0; form < 4; form++)
                gate_case(kernel, n, form % 2, form / 2, (float_kind)kind);
    usual();
    gate_case(kernel, 1536, false, true, PLAIN);
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
            s[j] = sum_of_products(some->width, some->q + r * some->q_ld, key) * some->scale;
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
                *a += p[j] * key_value(&some->v, j, i);
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

static void pool_case(const hc_kernel *kernel, int64_t height, int64_t width, int64_t before, int64_t size,
                      int64_t stride, int64_t down, int64_t n, float_kind kind) {
    begin("%" D " x %" D " from %" D ", windows of %" D " / %" D ", %" D " x %" D " answers, %s", height, width, before,
          size, stride, down, n, float_kind_name(kind));
    const hc_pool_plane defined = {.x = floats(height * width, kind),
                                   .height = height,
                                   .width = width,
                                   .top = before,
                                   .left = before,
                                   .size = {size, size},
                                   .stride = {stride, stride},
                                   .down = down,
                                   .n = n,
                                   .work = floats(hc_pool_work(n, size, stride), kind),
                                   .c = floats(down * n, kind)};
    float *got = copy_of(defined.c, down * n, 4);
    for (int64_t i = 0; i < down * n; i++) {
        float most = -INFINITY;
        for (int64_t s = 0; s < size; s++) {
            const int64_t k = i % n * stride + s - before;
            float column = -INFINITY;
            for (int64_t r = 0; r < size && k >= 0 && k < width; r++) {
                const int64_t h = i / n * stride + r - before;
                const float x = h >= 0 && h < height ? defined.x[h * width + k] : -INFINITY;
                if (x > column || isnan(x))
                    column = x;
            }
            if (column > most || isnan(column))
                most = column;
        }
        defined.c[i] = most;
    }
    hc_pool_plane plane = defined;
    plane.c = got;
    kernel->fn.pool_max(&plane);
    same("c", F32, got, defined.c, down * n);
    BENCH(hc_pool_max_scalar(&defined), kernel->fn.pool_max(&plane));
}

void check_pool_max(const hc_kernel *kernel) {
    FOR_EACH(int64_t, width, 1, 2, 7, 8, 9, 16, 17, 40)
    for (int64_t stride = 1; stride <= 3; stride++)
        for (int64_t before = 0; before <= 2; before++)
            pool_case(kernel, 5, *width, before, 3, stride, (4 + 2 * before) / stride + 1,
                      (*width - 1 + 2 * before) / stride + 1, PLAIN);
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        for (int64_t stride = 1; stride <= 2; stride++)
            pool_case(kernel, 4, 37, 1, 2, stride, 3, 38 / stride, (float_kind)kind);
    pool_case(kernel, 1, 3, 40, 2, 1, 3, 44, PLAIN); /* windows of padding */
    pool_case(kernel, 2, 3, 3, 2, 1, 2, 2, PLAIN);
    usual();
    pool_case(kernel, 28, 28, 1, 3, 2, 14, 14, PLAIN);
}
