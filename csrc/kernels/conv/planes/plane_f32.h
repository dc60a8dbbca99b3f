/* Planes of images by one filter each, with adjacent outputs in lanes. The rows of a plane are copied, with zeros between them;
 * with stride 2 the even columns of a row and then the odd ones. Every row begins at a whole register, and the rows of the next
 * plane are copied before the current one is read: loads of values that are still on their way to the cache would wait. Then
 * blocks of outputs are in registers, `down` rows of `across` registers, and each register of pixels is loaded once for all
 * rows of outputs that it belongs to. Included after a header of base/lanes/ and REGISTER, which names a register of lanes. */
#include "kernels/kernel.h"

#define INLINE __attribute__((always_inline)) static inline
/* The compiler forgets what it knows about a pointer. */
#define HIDE(pointer) __asm__ volatile("" : "+r"(pointer))

/* KEPT: the largest side of a filter whose values are in registers, which are 32. */
/* What is summed: products; the same, and the sum has a scale; products with a scale each; products of two limbs. */
enum { PRODUCTS, SCALED_SUM, SCALED_TAPS, LIMBS };
enum { MOST_SIDE = 7, MOST_DOWN = 8, MOST_ACROSS = 2, KEPT = LANES == 8 ? 0 : 3 };

/* How a plane lies in `work`: floats from a row to the next, and from the even columns of a row to the odd ones; the first
 * pixel; the pixels of a row that are read; from the first pixel of a row to that of a tap of output 0. */
typedef struct {
    int64_t pitch, odd, first, there, at[MOST_SIDE];
} plane_place;

INLINE plane_place place_of(const int side, const int stride, const hc_plane *p) {
    const int64_t needed = (p->across - 1) * stride + side - p->left;
    plane_place place = {.there = hc_max(0, hc_min(p->columns, needed))};
    place.odd = hc_plane_row(p->across, p->columns, p->left, side, stride);
    place.pitch = place.odd * stride;
    place.first = hc_round_up(p->left, HC_PLANE_LANES);
    for (int s = 0; s < side; s++) {
        const int64_t d = s - p->left;
        place.at[s] = stride == 1 ? d : (d & 1) * place.odd + (d - (d & 1)) / 2;
    }
    return place;
}

INLINE void zero(float *to, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES, to += LANES) {
        HIDE(to); /* otherwise few zeros are a call of memset */
        lanes_store(to, lanes_of(0));
    }
}

/* n floats, then zeros up to `all`, which is a multiple of LANES. */
INLINE void copy(const float *from, int64_t n, int64_t all, float *to) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store(to + i, lanes_load(from + i));
    if (i < n) {
        lanes_store(to + i, lanes_load_some(from + i, n - i));
        i += LANES;
    }
    zero(to + i, all - i);
}

/* The even ones of n floats, and `all` floats further the odd ones, each with zeros up to `all`. */
INLINE void split(const float *from, int64_t n, int64_t all, float *to) {
    int64_t i = 0;
    for (; 2 * (i + LANES) <= n; i += LANES) {
        const lanes a = lanes_load(from + 2 * i), b = lanes_load(from + 2 * i + LANES);
        lanes_store(to + i, lanes_even(a, b));
        lanes_store(to + all + i, lanes_odd(a, b));
    }
    if (2 * i < n) {
        const int64_t left = n - 2 * i;
        const lanes a = left >= LANES ? lanes_load(from + 2 * i) : lanes_load_some(from + 2 * i, left);
        const lanes b = left > LANES ? lanes_load_some(from + 2 * i + LANES, left - LANES) : lanes_of(0);
        lanes_store(to + i, lanes_even(a, b));
        lanes_store(to + all + i, lanes_odd(a, b));
        i += LANES;
    }
    zero(to + i, all - i);
    zero(to + all + i, all - i);
}

/* The same of rows that fit into one register for each half. */
INLINE void copy_short(const int stride, const float *from, int64_t row_step, int64_t n, int64_t rows, float *to) {
    const int64_t first = hc_min(n, LANES), second = n - first;
    for (int64_t h = 0; h < rows; h++, from += row_step, to += stride * LANES) {
        const lanes a = lanes_load_some(from, first);
        if (stride == 1) {
            lanes_store(to, a);
            continue;
        }
        const lanes b = lanes_load_some(from + first, second);
        lanes_store(to, lanes_even(a, b));
        lanes_store(to + LANES, lanes_odd(a, b));
    }
}

/* The rows of a plane that its outputs need. */
INLINE void copy_plane(const int side, const int stride, const hc_plane *p, const plane_place *place, int64_t number,
                       float *to) {
    const int64_t rows = (p->down - 1) * stride + side, first = hc_max(0, hc_min(p->top, rows));
    const int64_t end = hc_max(first, hc_min(p->top + p->rows, rows));
    const float *from = p->x + number * p->x_step + (first - p->top) * p->row_step;
    zero(to, first * place->pitch);
    zero(to + end * place->pitch, (rows - end) * place->pitch);
    to += first * place->pitch;
    if (place->odd == LANES && place->there > 0) {
        copy_short(stride, from, p->row_step, place->there, end - first, to);
        return;
    }
    for (int64_t h = first; h < end; h++, to += place->pitch, from += p->row_step)
        if (stride == 1)
            copy(from, place->there, place->odd, to);
        else
            split(from, place->there, place->odd, to);
}

/* Plane `number` of results: the outputs of `down` rows x `across` registers from output q of row i on, of which the second
 * register begins `second` outputs later, and of which rows and outputs beyond the last ones are not stored. x: the pixels. */
INLINE void block(const int kind, const int side, const int stride, const int down, const int across, const hc_plane *p,
                  const plane_place *place, int64_t number, const float *x, int64_t i, int64_t q, int64_t second) {
    const bool keeps = side <= KEPT;
    lanes sum[MOST_DOWN][MOST_ACROSS], upper[MOST_DOWN][MOST_ACROSS], kept[9], kept_other[9];
    const float *w = p->w + number * p->w_step;
    const bool both = kind == SCALED_TAPS || kind == LIMBS;
    const float *other = both ? (kind == LIMBS ? p->high : p->tap_scale) + number * p->w_step : NULL;
    if (keeps)
#pragma GCC unroll 9
        for (int t = 0; t < 9; t++)
            kept[t] = lanes_of(w[t]), kept_other[t] = lanes_of(both ? other[t] : 0);
#pragma GCC unroll 8
    for (int r = 0; r < down; r++)
#pragma GCC unroll 2
        for (int b = 0; b < across; b++)
            sum[r][b] = lanes_of(0), upper[r][b] = lanes_of(0);
    x += i * stride * place->pitch + q;
#pragma GCC unroll 32
    for (int h = 0; h < (down - 1) * stride + side; h++, x += place->pitch) {
        HIDE(x); /* otherwise the addresses of all rows are computed first, and kept in memory */
#pragma GCC unroll 7
        for (int s = 0; s < side; s++) {
            if (!keeps)
                HIDE(w); /* otherwise all values of the filter are kept, more than there are registers */
            if (!keeps && both)
                HIDE(other);
            const float *from = x + place->at[s];
            lanes pixels[MOST_ACROSS];
#pragma GCC unroll 2
            for (int b = 0; b < across; b++) {
                pixels[b] = lanes_load(from + b * second);
                __asm__("" : REGISTER(pixels[b])); /* otherwise each product loads them */
            }
#pragma GCC unroll 8
            for (int d = 0; d < down; d++) {
                const int r = h - d * stride;
                if (r < 0 || r >= side)
                    continue;
                const lanes value = keeps ? kept[r * 3 + s] : lanes_of(w[r * side + s]);
                const lanes by = !both ? value : keeps ? kept_other[r * 3 + s] : lanes_of(other[r * side + s]);
#pragma GCC unroll 2
                for (int b = 0; b < across; b++) {
                    if (kind == LIMBS)
                        upper[d][b] = lanes_fma(pixels[b], by, upper[d][b]);
                    sum[d][b] = kind == SCALED_TAPS ? lanes_fma(lanes_mul(pixels[b], value), by, sum[d][b])
                                                    : lanes_fma(pixels[b], value, sum[d][b]);
                }
            }
        }
    }
    if (kind == SCALED_SUM || kind == LIMBS) {
#pragma GCC unroll 8
        for (int d = 0; d < down; d++)
#pragma GCC unroll 2
            for (int b = 0; b < across; b++)
                sum[d][b] = kind == LIMBS ? lanes_scaled_pair(p->scale[number], upper[d][b], sum[d][b])
                                          : lanes_scaled(p->scale[number], sum[d][b]);
    }
    if (p->bias || p->relu) {
        const lanes bias = lanes_of(p->bias ? p->bias[number] : -0.0f);
#pragma GCC unroll 8
        for (int d = 0; d < down; d++)
#pragma GCC unroll 2
            for (int b = 0; b < across; b++) {
                sum[d][b] = lanes_add(sum[d][b], bias);
                if (p->relu)
                    sum[d][b] = lanes_relu(sum[d][b]);
            }
    }
    float *to = p->c + number * p->c_step + i * p->c_row + q;
    /* outputs beyond the end of a row are those of the next rows, which are stored later */
    const int64_t left = p->c_row == p->across ? (p->down - i) * p->across : 0, some = p->across - q;
#pragma GCC unroll 8
    for (int d = 0; d < down; d++, to += p->c_row) {
        if (i + d >= p->down)
            break;
        if (across == 1 && some < LANES && left - d * p->across < LANES) {
            lanes_store_some(to, sum[d][0], some);
            continue;
        }
#pragma GCC unroll 2
        for (int b = 0; b < across; b++)
            lanes_store(to + b * second, sum[d][b]);
    }
}

/* All outputs of a plane. The last register of a row ends with the row, and so computes some outputs of the one before it
 * again. */
INLINE void plane(const int kind, const int side, const int stride, const hc_plane *p, const plane_place *place,
                  int64_t number, const float *x) {
    enum { DOWN = MOST_DOWN / 2 };
    const int64_t last = p->across - LANES;
    const int rows = kind == LIMBS ? DOWN : MOST_DOWN; /* as many sums */
    if (kind == LIMBS || side <= KEPT || last <= 0) {
        for (int64_t i = 0; i < p->down; i += rows) {
            int64_t q = 0;
            for (; q < last; q += LANES)
                block(kind, side, stride, rows, 1, p, place, number, x, i, q, 0);
            block(kind, side, stride, rows, 1, p, place, number, x, i, hc_max(last, 0), 0);
        }
        return;
    }
    for (int64_t i = 0; i < p->down; i += DOWN) {
        int64_t q = 0;
        for (; q < last; q += 2 * LANES)
            block(kind, side, stride, DOWN, 2, p, place, number, x, i, q, hc_min(LANES, last - q));
        if (q < p->across)
            block(kind, side, stride, DOWN, 1, p, place, number, x, i, last, 0);
    }
}

INLINE void planes(const int kind, const int side, const int stride, const hc_plane *p) {
    const plane_place place = place_of(side, stride, p);
    const int64_t half = hc_plane_work(p, side, stride) / 2;
    float *work[2] = {p->work + place.first, p->work + half + place.first};
    zero(p->work, place.first);
    zero(p->work + half, place.first);
    copy_plane(side, stride, p, &place, 0, work[0]);
    for (int64_t i = 0; i < p->planes; i++) {
        if (i + 1 < p->planes)
            copy_plane(side, stride, p, &place, i + 1, work[(i + 1) & 1]);
        plane(kind, side, stride, p, &place, i, work[i & 1]);
    }
}

#define HC_CASE(kind, of, side, stride)                                                                                \
    __attribute__((noinline)) static void of##_##side##_##stride(const hc_plane *p) { planes(kind, side, stride, p); }
#define HC_CASES(kind, of)                                                                                             \
    HC_CASE(kind, of, 3, 1)                                                                                            \
    HC_CASE(kind, of, 3, 2)                                                                                            \
    HC_CASE(kind, of, 5, 1)                                                                                            \
    HC_CASE(kind, of, 5, 2)                                                                                            \
    HC_CASE(kind, of, 7, 1)                                                                                            \
    HC_CASE(kind, of, 7, 2)                                                                                            \
    static void of(const hc_plane *p) {                                                                                \
        const bool one = p->stride == 1;                                                                               \
        (p->side == 3   ? one ? of##_3_1 : of##_3_2                                                                    \
         : p->side == 5 ? one ? of##_5_1 : of##_5_2                                                                    \
         : one          ? of##_7_1                                                                                     \
                        : of##_7_2)(p);                                                                                \
    }
HC_CASES(PRODUCTS, products)
HC_CASES(SCALED_SUM, scaled_sum)
HC_CASES(SCALED_TAPS, scaled_taps)
HC_CASES(LIMBS, limbs)

#define HC_PLANE_F32(isa)                                                                                              \
    void hc_plane_f32_##isa(const hc_plane *p) {                                                                       \
        (p->high ? limbs : p->scale ? scaled_sum : p->tap_scale ? scaled_taps : products)(p);                          \
    }
