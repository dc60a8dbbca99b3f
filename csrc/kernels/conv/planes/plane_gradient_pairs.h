/* Gradients of filters of 3 x 3 and 5 x 5 with stride 2: two pairs of rows of pixels at a time, the even and the odd columns of
 * each in a register. Each register of dy is loaded once for all of them. The rows of the next plane are copied, with zeros
 * between them, before the current one is read, as in plane_f32.h. Part of plane_gradient_f32.h; REGISTER names a register of
 * lanes.
 */
enum { PAIRS = 2, PAIR_KEPT = LANES == 8 ? 0 : 3 };

/* dy in `work`: floats from a row to the next, the rows, the values that are read of a row, and the first row and column
 * that pixels 0 and 1 meet, which may be negative. */
typedef struct {
    int64_t pitch, rows, there, row, column;
} pairs_place;

/* The compiler forgets what it knows about a pointer. */
#define HIDE(pointer) __asm__ volatile("" : "+r"(pointer))

INLINE void copy_dy(const hc_plane_gradient *p, const pairs_place *place, int64_t number, float *to) {
    const float *dy = p->dy + number * p->rows * p->columns;
    for (int64_t h = 0; h < place->rows; h++, to += place->pitch) {
        const int64_t row = place->row + h, there = row >= 0 && row < p->rows ? place->there : 0;
        const float *from = dy + (there ? row * p->columns : 0);
        float *at = to;
        int64_t i = 0;
        for (; i + LANES <= there; i += LANES, at += LANES)
            lanes_store(at, lanes_load(from + i));
        if (i < there) {
            lanes_store(at, lanes_load_some(from + i, there - i));
            i += LANES, at += LANES;
        }
        for (; i < place->pitch; i += LANES, at += LANES) {
            HIDE(at); /* otherwise few zeros are a call of memset */
            lanes_store(at, lanes_of(0));
        }
    }
}

/* The tap that pixels of a phase, 0 or 1, meet at value k of dy, or one outside of the filter. odd: the parity of the padding. */
#define TAP(side, odd, phase, k) (2 * (((side) + 1) / 2 - 1 - (k)) + ((phase) == (odd) ? 0 : (odd) ? -1 : 1))

/* Pixels of rows 2 pair to 2 (pair + PAIRS) - 1 and of columns from 2 t on. x: the first value of dy. */
INLINE void pairs_block(const int side, const int odd_row, const int odd_column, const hc_plane_gradient *p,
                        const float *w, const float *x, int64_t pitch, int64_t pair, int64_t t, float *c) {
    const int met = (side + 1) / 2;
    lanes sum[PAIRS][2][2], kept[9];
#pragma GCC unroll 9
    for (int i = 0; i < 9 && side <= PAIR_KEPT; i++)
        kept[i] = lanes_of(w[i]);
#pragma GCC unroll 2
    for (int d = 0; d < PAIRS; d++)
        sum[d][0][0] = sum[d][0][1] = sum[d][1][0] = sum[d][1][1] = lanes_of(0);
    x += pair * pitch + t;
#pragma GCC unroll 4
    for (int h = 0; h < PAIRS - 1 + met; h++, x += pitch) {
        HIDE(x);
#pragma GCC unroll 3
        for (int k = 0; k < met; k++) {
            if (side > PAIR_KEPT)
                HIDE(w); /* otherwise all values of the filter are kept, more than there are registers */
            lanes values = lanes_load(x + k);
            __asm__("" : REGISTER(values)); /* otherwise each product loads them */
#pragma GCC unroll 2
            for (int d = 0; d < PAIRS; d++)
#pragma GCC unroll 2
                for (int down = 0; down < 2; down++)
#pragma GCC unroll 2
                    for (int across = 0; across < 2; across++) {
                        const int r = TAP(side, odd_row, down, h - d), s = TAP(side, odd_column, across, k);
                        if (h < d || h - d >= met || r < 0 || r >= side || s < 0 || s >= side)
                            continue;
                        const lanes value = side <= PAIR_KEPT ? kept[r * 3 + s] : lanes_of(w[r * side + s]);
                        sum[d][down][across] = lanes_fma(values, value, sum[d][down][across]);
                    }
        }
    }
    const int64_t some = p->width - 2 * t;
    float *to = c + 2 * pair * p->width + 2 * t;
    /* pixels beyond the end of a row are those of the next rows, which are stored later */
    int64_t left = p->width <= 2 * LANES ? (p->height - 2 * pair) * p->width : 0;
#pragma GCC unroll 2
    for (int d = 0; d < PAIRS; d++)
#pragma GCC unroll 2
        for (int down = 0; down < 2; down++, to += p->width, left -= p->width) {
            if (2 * (pair + d) + down >= p->height)
                return;
            if (some >= 2 * LANES || left >= 2 * LANES) {
                beside(sum[d][down][0], sum[d][down][1], to);
                continue;
            }
            float last[2 * LANES];
            beside(sum[d][down][0], sum[d][down][1], last);
            for (int64_t j = 0; j < some; j++)
                to[j] = last[j];
        }
}

/* All pixels of a plane. The last registers of a row end with it, and so have some pixels of the ones before again. */
INLINE void pairs_plane(const int side, const int odd_row, const int odd_column, const hc_plane_gradient *p,
                        const float *w, const float *x, int64_t pitch, float *c) {
    const bool again = p->width >= 2 * LANES && p->width % 2 == 0;
    for (int64_t pair = 0; 2 * pair < p->height; pair += PAIRS)
        for (int64_t t = 0; 2 * t < p->width; t += LANES)
            pairs_block(side, odd_row, odd_column, p, w, x, pitch, pair, again ? hc_min(t, p->width / 2 - LANES) : t,
                        c);
}

INLINE void pairs_planes(const int side, const int odd_row, const int odd_column, const hc_plane_gradient *p) {
    const int64_t met = (side + 1) / 2;
    pairs_place place = {.pitch = hc_gradient_pitch(p), .rows = hc_gradient_rows(p)};
    place.row = (p->top - odd_row) / 2 - met + 1 + odd_row;
    place.column = (p->left - odd_column) / 2 - met + 1 + odd_column;
    place.there = hc_max(0, hc_min(p->columns, place.column + (p->width + 1) / 2 + met - 1));
    const int64_t half = hc_plane_gradient_work(p) / 2, first = hc_round_up(hc_max(0, -place.column), HC_PLANE_LANES);
    float *work[2] = {p->work + first, p->work + half + first};
    for (int64_t i = 0; i < first; i += LANES) {
        lanes_store(p->work + i, lanes_of(0));
        lanes_store(p->work + half + i, lanes_of(0));
    }
    copy_dy(p, &place, 0, work[0]);
    for (int64_t i = 0; i < p->planes; i++) {
        if (i + 1 < p->planes)
            copy_dy(p, &place, i + 1, work[(i + 1) & 1]);
        pairs_plane(side, odd_row, odd_column, p, p->w + i * side * side, work[i & 1] + place.column, place.pitch,
                    p->c + i * p->height * p->width);
    }
}

#define HC_PAIRS(side, odd_row, odd_column)                                                                            \
    __attribute__((noinline)) static void pairs_##side##_##odd_row##_##odd_column(const hc_plane_gradient *p) {        \
        pairs_planes(side, odd_row, odd_column, p);                                                                    \
    }
HC_PAIRS(3, 0, 0)
HC_PAIRS(3, 0, 1)
HC_PAIRS(3, 1, 0)
HC_PAIRS(3, 1, 1)
HC_PAIRS(5, 0, 0)
HC_PAIRS(5, 0, 1)
HC_PAIRS(5, 1, 0)
HC_PAIRS(5, 1, 1)
