/* Transforms of tiles of height x width for convolutions by the Fourier transform, for values of type HC_V: lanes of an
 * instruction set, or one float for the rest. conv.h defines them, reference/transforms/fft.py defines the order of
 * every sum. Included once per HC_V, with HC_NAME for the names of its functions. Two rows of real values are one row
 * of complex values; the columns 0 and width / 2, whose values are real, are one column. A work area holds width / 2
 * columns of complex values, real parts then imaginary ones, and a row.
 */
#ifndef HC_FFT_TABLES
#define HC_FFT_TABLES
#define HC_INLINE __attribute__((always_inline)) static inline
/* sin(2 pi j / 64); a quarter further is the cosine. Computed in float64, rounded once. */
static const float SINE[64] = {
    0,
    0.0980171412f,
    0.195090324f,
    0.290284663f,
    0.382683426f,
    0.471396744f,
    0.555570245f,
    0.634393275f,
    0.707106769f,
    0.773010433f,
    0.831469595f,
    0.881921291f,
    0.923879504f,
    0.956940353f,
    0.980785251f,
    0.99518472f,
    1,
    0.99518472f,
    0.980785251f,
    0.956940353f,
    0.923879504f,
    0.881921291f,
    0.831469595f,
    0.773010433f,
    0.707106769f,
    0.634393275f,
    0.555570245f,
    0.471396744f,
    0.382683426f,
    0.290284663f,
    0.195090324f,
    0.0980171412f,
    0,
    -0.0980171412f,
    -0.195090324f,
    -0.290284663f,
    -0.382683426f,
    -0.471396744f,
    -0.555570245f,
    -0.634393275f,
    -0.707106769f,
    -0.773010433f,
    -0.831469595f,
    -0.881921291f,
    -0.923879504f,
    -0.956940353f,
    -0.980785251f,
    -0.99518472f,
    -1,
    -0.99518472f,
    -0.980785251f,
    -0.956940353f,
    -0.923879504f,
    -0.881921291f,
    -0.831469595f,
    -0.773010433f,
    -0.707106769f,
    -0.634393275f,
    -0.555570245f,
    -0.471396744f,
    -0.382683426f,
    -0.290284663f,
    -0.195090324f,
    -0.0980171412f,
};

/* Position of value x of n before the first pass: first all x with x % 4 == 0, then 1, 2, 3, each sorted recursively in
 * the same way; the last level by 2. */
HC_INLINE int fft_place(int n, int x) {
    int at = 0;
    for (n /= 4; n > 0; n /= 4, x /= 4)
        at += x % 4 * n;
    return at + x;
}
#endif

typedef struct {
    HC_V *re, *im; /* of columns, column_ld apart */
    int64_t column_ld;
    HC_V *row_re, *row_im;
    int at_row[64], at_column[64]; /* fft_place of width and height */
} HC_NAME(work);

HC_INLINE HC_NAME(work) HC_NAME(begin)(int height, int width, float *memory) {
    HC_NAME(work) w = {.re = (HC_V *)(void *)memory, .column_ld = height + 1};
    w.im = w.re + width / 2 * w.column_ld;
    w.row_re = w.im + width / 2 * w.column_ld;
    w.row_im = w.row_re + width;
    for (int i = 0; i < width; i++)
        w.at_row[i] = fft_place(width, i);
    for (int i = 0; i < height; i++)
        w.at_column[i] = fft_place(height, i);
    return w;
}

/* Values k, k + h, k + 2 h and k + 3 h of four transforms, replaced in place; turn: the last three are multiplied by
 * w^j. */
HC_INLINE void HC_NAME(four)(HC_V *re, HC_V *im, int h, bool turn, const float *cosine, const float *sine) {
    HC_V x_re[4], x_im[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const HC_V a = re[j * h], b = im[j * h];
        x_re[j] = turn && j ? HC_FMA(HC_SET(sine[j]), b, HC_MUL(HC_SET(cosine[j]), a)) : a;
        x_im[j] = turn && j ? HC_FMA(HC_SET(-sine[j]), a, HC_MUL(HC_SET(cosine[j]), b)) : b;
    }
    const HC_V even_re = HC_ADD(x_re[0], x_re[2]), even_im = HC_ADD(x_im[0], x_im[2]);
    const HC_V apart_re = HC_SUB(x_re[0], x_re[2]), apart_im = HC_SUB(x_im[0], x_im[2]);
    const HC_V odd_re = HC_ADD(x_re[1], x_re[3]), odd_im = HC_ADD(x_im[1], x_im[3]);
    const HC_V turned_re = HC_SUB(x_re[1], x_re[3]), turned_im = HC_SUB(x_im[1], x_im[3]);
    re[0] = HC_ADD(even_re, odd_re), im[0] = HC_ADD(even_im, odd_im);
    re[h] = HC_ADD(apart_re, turned_im), im[h] = HC_SUB(apart_im, turned_re);
    re[2 * h] = HC_SUB(even_re, odd_re), im[2 * h] = HC_SUB(even_im, odd_im);
    re[3 * h] = HC_SUB(apart_re, turned_im), im[3 * h] = HC_ADD(apart_im, turned_re);
}

/* Transforms n values that are at their fft_place, in place. With re and im exchanged it is the inverse, times n. */
static void HC_NAME(transform)(int n, HC_V *re, HC_V *im) {
    int h = 1;
    if (n == 8 || n == 32) {
        for (int i = 0; i < n; i += 2) {
            const HC_V a_re = re[i], a_im = im[i], b_re = re[i + 1], b_im = im[i + 1];
            re[i] = HC_ADD(a_re, b_re), im[i] = HC_ADD(a_im, b_im);
            re[i + 1] = HC_SUB(a_re, b_re), im[i + 1] = HC_SUB(a_im, b_im);
        }
        h = 2;
    }
    for (; h < n; h *= 4) {
        for (int i = 0; i < n; i += 4 * h)
            HC_NAME(four)(re + i, im + i, h, false, NULL, NULL);
        for (int k = 1; k < h; k++) {
            float cosine[4], sine[4];
            for (int j = 1; j < 4; j++) {
                sine[j] = SINE[j * k * 16 / h];
                cosine[j] = SINE[j * k * 16 / h + 16];
            }
            for (int i = k; i < n; i += 4 * h)
                HC_NAME(four)(re + i, im + i, h, true, cosine, sine);
        }
    }
}

/* Row h of the tile, from channel c on, into `to`, which is 0 elsewhere; false if the row has no pixels. */
HC_INLINE bool HC_NAME(row)(const hc_fft_pixels *pixels, int h, int64_t c, const int *at, HC_V *to) {
    const int below = h - pixels->top, line = below / pixels->down;
    if (below < 0 || below % pixels->down || line >= pixels->rows)
        return false;
    const float *from = pixels->values + line * pixels->row_step + c;
    for (int i = 0; i < pixels->columns; i++, from += pixels->pixel_step)
        to[at[pixels->left + i * pixels->across]] = HC_LOAD(from);
    return true;
}

/* Rows h and h + 1, transformed, into the columns. */
HC_INLINE void HC_NAME(row_pair)(const HC_NAME(work) * w, int height, int width, const hc_fft_pixels *pixels, int h,
                                 int64_t c) {
    HC_V *re = w->row_re, *im = w->row_im;
    for (int i = 0; i < width; i++)
        re[i] = im[i] = HC_SET(0);
    const bool has_first = HC_NAME(row)(pixels, h, c, w->at_row, re);
    const bool has_second = HC_NAME(row)(pixels, h + 1, c, w->at_row, im);
    if (has_first || has_second)
        HC_NAME(transform)(width, re, im);
    HC_V *to_re = w->re + w->at_column[h], *to_im = w->im + w->at_column[h];
    const int64_t second = height > 1 ? w->at_column[h + 1] - w->at_column[h] : 0;
    to_re[second] = im[0], to_im[second] = im[width / 2];
    to_re[0] = re[0], to_im[0] = re[width / 2];
    for (int k = 1; k < width / 2; k++) {
        const HC_V a_re = re[k], a_im = im[k], b_re = re[width - k], b_im = im[width - k];
        to_re += w->column_ld, to_im += w->column_ld;
        to_re[second] = HC_ADD(a_im, b_im), to_im[second] = HC_SUB(b_re, a_re);
        to_re[0] = HC_ADD(a_re, b_re), to_im[0] = HC_SUB(a_im, b_im);
    }
}

/* The three factors of a value: for an image re + im, re, im; for a filter, whose conjugate multiplies, re, re + im, re
 * - im. */
HC_INLINE void HC_NAME(store)(bool filter, HC_V re, HC_V im, float *to, int64_t part) {
    HC_STORE(to, filter ? re : HC_ADD(re, im));
    HC_STORE(to + part, filter ? HC_ADD(re, im) : re);
    HC_STORE(to + 2 * part, filter ? HC_SUB(re, im) : im);
}

HC_INLINE void HC_NAME(forward)(int height, int width, bool filter, const hc_fft_pixels *pixels, int64_t c, float *to,
                                int64_t step, float *memory) {
    const HC_NAME(work) w = HC_NAME(begin)(height, width, memory);
    const int64_t part = hc_fft_places(height, width) * step;
    for (int h = 0; h < height; h += 2)
        HC_NAME(row_pair)(&w, height, width, pixels, h, c);
    HC_NAME(transform)(height, w.re, w.im);
    float *other = to + (height / 2 + 1) * step; /* of column width / 2 */
    for (int h = 0; h <= height / 2; h++, to += step, other += step) {
        const int j = (height - h) % height;
        const HC_V a_re = w.re[h], a_im = w.im[h], b_re = w.re[j], b_im = w.im[j];
        HC_NAME(store)(filter, HC_ADD(a_re, b_re), HC_SUB(a_im, b_im), to, part);
        HC_NAME(store)(filter, HC_ADD(a_im, b_im), HC_SUB(b_re, a_re), other, part);
    }
    to = other;
    for (int k = 1; k < width / 2; k++) {
        HC_V *re = w.re + k * w.column_ld, *im = w.im + k * w.column_ld;
        HC_NAME(transform)(height, re, im);
        for (int h = 0; h < height; h++, to += step)
            HC_NAME(store)(filter, re[h], im[h], to, part);
    }
}

/* A value of the sums of the three products. */
HC_INLINE void HC_NAME(load)(const float *y, int64_t part, HC_V *re, HC_V *im) {
    const HC_V both = HC_LOAD(y);
    *im = HC_SUB(both, HC_LOAD(y + part));
    *re = HC_SUB(both, HC_LOAD(y + 2 * part));
}

HC_INLINE void HC_NAME(columns_back)(const HC_NAME(work) * w, int height, int width, const float *y, int64_t step) {
    const int64_t part = hc_fft_places(height, width) * step;
    const float *other = y + (height / 2 + 1) * step;
    for (int h = 0; h <= height / 2; h++, y += step, other += step) {
        HC_V a_re, a_im, b_re, b_im;
        HC_NAME(load)(y, part, &a_re, &a_im);
        HC_NAME(load)(other, part, &b_re, &b_im);
        const int at = w->at_column[h], opposite = w->at_column[(height - h) % height];
        w->re[opposite] = HC_ADD(a_re, b_im), w->im[opposite] = HC_SUB(b_re, a_im);
        w->re[at] = HC_SUB(a_re, b_im), w->im[at] = HC_ADD(a_im, b_re);
    }
    HC_NAME(transform)(height, w->im, w->re);
    y = other;
    for (int k = 1; k < width / 2; k++) {
        HC_V *re = w->re + k * w->column_ld, *im = w->im + k * w->column_ld;
        for (int h = 0; h < height; h++, y += step)
            HC_NAME(load)(y, part, re + w->at_column[h], im + w->at_column[h]);
        HC_NAME(transform)(height, im, re);
    }
}

/* Transforms row a and row b (unless it is past the tile) back: they are the real and imaginary parts of one row. */
HC_INLINE void HC_NAME(rows_back)(const HC_NAME(work) * w, int height, int width, int a, int b) {
    const HC_V zero = HC_SET(0);
    HC_V *re = w->row_re, *im = w->row_im;
    const bool has_b = b < height;
    re[0] = w->re[a], im[0] = has_b ? w->re[b] : zero;
    const int half = w->at_row[width / 2];
    re[half] = w->im[a], im[half] = has_b ? w->im[b] : zero;
    for (int k = 1; k < width / 2; k++) {
        const HC_V *column_re = w->re + k * w->column_ld, *column_im = w->im + k * w->column_ld;
        const HC_V a_re = column_re[a], a_im = column_im[a];
        const HC_V b_re = has_b ? column_re[b] : zero, b_im = has_b ? column_im[b] : zero;
        const int at = w->at_row[k], opposite = w->at_row[width - k];
        re[at] = HC_SUB(a_re, b_im), im[at] = HC_ADD(a_im, b_re);
        re[opposite] = HC_ADD(a_re, b_im), im[opposite] = HC_SUB(b_re, a_im);
    }
    HC_NAME(transform)(width, im, re);
}

HC_INLINE void HC_NAME(back)(int height, int width, const float *y, int64_t step, int64_t f, const float *bias,
                             bool relu, const hc_fft_answers *answers, float *memory) {
    const HC_NAME(work) w = HC_NAME(begin)(height, width, memory);
    const HC_V scale = HC_SET(0.25f / (float)(height * width)); /* a power of 2 */
    HC_NAME(columns_back)(&w, height, width, y + f, step);
    for (int p = 0; p < answers->rows; p += 2) {
        HC_NAME(rows_back)(&w, height, width, p * answers->down, (p + 1) * answers->down);
        for (int i = 0; i < 2 && p + i < answers->rows; i++) {
            const HC_V *row = i ? w.row_im : w.row_re;
            float *to = answers->to + (p + i) * answers->row_step + f;
            for (int q = 0; q < answers->columns; q++, to += answers->pixel_step) {
                HC_V value = HC_MUL(row[q * answers->across], scale);
                value = bias ? HC_ADD(value, HC_LOAD(bias + f)) : value;
                HC_STORE(to, relu ? HC_RELU(value) : value);
            }
        }
    }
}
#undef HC_V
#undef HC_NAME
#undef HC_LOAD
#undef HC_LOAD_SOME
#undef HC_STORE
#undef HC_SET
#undef HC_ADD
#undef HC_SUB
#undef HC_MUL
#undef HC_FMA
#undef HC_RELU
