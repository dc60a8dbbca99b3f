/* One plane of an image by one filter, with adjacent outputs in lanes. Rows are copied with their padding, those of even
 * and odd columns one after the other if the stride is 2. Then blocks of outputs are in registers, `down` rows of `across`
 * registers, and each register of pixels is loaded once for all rows of outputs that it belongs to. Included after a header
 * of base/lanes/. */
#include "kernels/kernel.h"

#include <string.h>

#define INLINE __attribute__((always_inline)) static inline

enum { MOST_DOWN = 8, MOST_ACROSS = 2 };

/* n floats, without stores of a part of a register, which are slow. */
INLINE void copy(const float *from, int64_t n, float *to) {
    enum { FOUR = 4 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store(to + i, lanes_load(from + i));
    if (i < n && n > LANES) {
        lanes_store(to + n - LANES, lanes_load(from + n - LANES));
        return;
    }
    for (; i + FOUR <= n; i += FOUR)
        memcpy(to + i, from + i, FOUR * sizeof *to);
    for (; i < n; i++)
        to[i] = from[i];
}

/* Every second one of them. */
INLINE void copy_half(const float *from, int64_t n, float *to) {
    int64_t i = 0;
    for (; i + LANES < n; i += LANES)
        lanes_store(to + i, lanes_even(lanes_load(from + 2 * i), lanes_load(from + 2 * i + LANES)));
    if (i > 0) { /* up to the last one, which may be the end of memory */
        const float *last = from + 2 * (n - LANES) - 1;
        lanes_store(to + n - LANES, lanes_odd(lanes_load(last), lanes_load(last + LANES)));
        return;
    }
    for (; i < n; i++)
        to[i] = from[2 * i];
}

/* At least n zeros, up to the next multiple of LANES. */
INLINE void zero(float *to, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES)
        lanes_store(to + i, lanes_of(0));
}

/* The columns of a padded row that belong to a phase: zeros before `begin` and from `end` to `size`. */
typedef struct {
    int64_t begin, end, size, first; /* of x: column of `begin` */
} phase_of;

INLINE phase_of columns_of(const hc_plane *p, int64_t phase) {
    const int64_t stride = p->stride, size = p->across + (p->side - 1 - phase) / stride;
    const int64_t before = p->left > phase ? (p->left - phase + stride - 1) / stride : 0;
    const int64_t first = before * stride + phase - p->left;
    const int64_t there = first < p->columns ? (p->columns - first + stride - 1) / stride : 0;
    const int64_t begin = before < size ? before : size;
    return (phase_of){begin, there < size - begin ? begin + there : size, size, first};
}

/* The rows of the padded plane that outputs need, `half` floats apart with stride 1 and twice as many with stride 2. */
INLINE void copy_rows(const int stride, const hc_plane *p, int64_t half) {
    const phase_of phases[2] = {columns_of(p, 0), columns_of(p, 1)};
    const int64_t rows = (p->down - 1) * stride + p->side;
    float *to = p->work;
    for (int64_t h = 0; h < rows; h++)
        for (int phase = 0; phase < stride; phase++, to += half) {
            const phase_of *of = phases + phase;
            const int64_t row = h - p->top, begin = of->begin, n = of->end - begin;
            if (row < 0 || row >= p->rows) {
                zero(to, of->size);
                continue;
            }
            zero(to, begin);
            if (n > 0) {
                const float *from = p->x + row * p->row_step + of->first;
                if (stride == 1)
                    copy(from, n, to + begin);
                else
                    copy_half(from, n, to + begin);
            }
            zero(to + of->end, of->size - of->end);
        }
}

/* Outputs of `down` rows x `across` registers, of which the second begins `second` outputs later and `rows` are stored; x:
 * the first pixel of the first one. */
INLINE void block(const int side, const int stride, const int down, const int across, const hc_plane *p, const float *x,
                  int64_t pitch, int64_t rows, int64_t second, float *c) {
    lanes sum[MOST_DOWN][MOST_ACROSS];
    const int64_t half = pitch / stride;
    const float *w = p->w;
#pragma GCC unroll 8
    for (int i = 0; i < down; i++)
#pragma GCC unroll 2
        for (int b = 0; b < across; b++)
            sum[i][b] = lanes_of(0);
#pragma GCC unroll 32
    for (int h = 0; h < (down - 1) * stride + side; h++, x += pitch)
#pragma GCC unroll 3
        for (int s = 0; s < side; s++) {
            __asm__ volatile(
                ""
                : "+r"(w)); /* otherwise all values of the filter are kept, more than there are registers */
            const float *from = stride == 1 ? x + s : x + s % 2 * half + s / 2;
            lanes pixels[MOST_ACROSS];
#pragma GCC unroll 2
            for (int b = 0; b < across; b++)
                pixels[b] = lanes_load(from + b * second);
#pragma GCC unroll 8
            for (int i = 0; i < down; i++) {
                const int r = h - i * stride;
                if (r < 0 || r >= side)
                    continue;
                const lanes value = lanes_of(w[r * side + s]);
#pragma GCC unroll 2
                for (int b = 0; b < across; b++)
                    sum[i][b] = lanes_fma(pixels[b], value, sum[i][b]);
            }
        }
    if (p->finishes) {
        const lanes bias = lanes_of(p->bias);
#pragma GCC unroll 8
        for (int i = 0; i < down; i++)
#pragma GCC unroll 2
            for (int b = 0; b < across; b++) {
                sum[i][b] = lanes_add(sum[i][b], bias);
                if (p->relu)
                    sum[i][b] = lanes_relu(sum[i][b]);
            }
    }
#pragma GCC unroll 8
    for (int i = 0; i < down; i++) {
        if (i >= rows)
            break;
        float *to = c + i * p->c_row;
        if (across == 1 && p->across < LANES) {
            float own[LANES];
            lanes_store(own, sum[i][0]);
            copy(own, p->across, to);
            continue;
        }
#pragma GCC unroll 2
        for (int b = 0; b < across; b++)
            lanes_store(to + b * second, sum[i][b]);
    }
}

/* All outputs. Few columns are one register of twice as many rows. The last register of a row ends with the row, and so
 * computes some outputs of the one before it again. */
INLINE void plane(const int side, const int stride, const hc_plane *p) {
    enum { DOWN = MOST_DOWN / 2 };
    const int down = p->across <= LANES ? MOST_DOWN : DOWN;
    const int64_t last = p->across - LANES, half = (p->across + LANES - 1) / LANES * LANES + 8, pitch = stride * half;
    copy_rows(stride, p, half);
    for (int64_t i = 0; i < p->down; i += down) {
        const float *x = p->work + i * stride * pitch;
        float *c = p->c + i * p->c_row;
        const int64_t rows = p->down - i;
        if (last <= 0) {
            block(side, stride, MOST_DOWN, 1, p, x, pitch, rows, 0, c);
            continue;
        }
        int64_t q = 0;
        for (; q < last; q += 2 * LANES) {
            const int64_t second = q + LANES < last ? LANES : last - q;
            block(side, stride, DOWN, 2, p, x + q, pitch, rows, second, c + q);
        }
        if (q < p->across)
            block(side, stride, DOWN, 1, p, x + last, pitch, rows, 0, c + last);
    }
}

#define HC_CASE(side, stride)                                                                                          \
    __attribute__((noinline)) static void plane_##side##_##stride(const hc_plane *p) { plane(side, stride, p); }
HC_CASE(3, 1)
HC_CASE(3, 2)
HC_CASE(5, 1)
HC_CASE(5, 2)
HC_CASE(7, 1)
HC_CASE(7, 2)

#define HC_PLANE_F32(isa)                                                                                              \
    void hc_plane_f32_##isa(const hc_plane *p) {                                                                       \
        const bool one = p->stride == 1;                                                                               \
        (p->side == 3   ? one ? plane_3_1 : plane_3_2                                                                  \
         : p->side == 5 ? one ? plane_5_1 : plane_5_2                                                                  \
         : one          ? plane_7_1                                                                                    \
                        : plane_7_2)(p);                                                                               \
    }
