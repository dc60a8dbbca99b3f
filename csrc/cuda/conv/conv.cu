/* Convolution as a matmul whose rows are windows, gathered piece by piece: nothing is stored of them.
 *
 *   k = (tap, channel): a pixel of a group of channels lies whole, so that a piece of 16 bytes is of one tap
 *
 * A tap beyond the image has zeros, and 0 for its scale. Groups of few filters have a kernel without matrix units.
 */
#include "cuda/matmul/chains.h"
#include "cuda/matmul/tile.h"

namespace {

/* The place of an answer, from its number in 32 bits, as the planner saw to: divisions of 64 bits are long. */
struct place {
    uint32_t image, h, w;
};
static inline HC_DEVICE place place_of(const hc_cuda_conv &p, int64_t window) {
    const uint32_t line = (uint32_t)window / (uint32_t)p.out_width, image = line / (uint32_t)p.out_height;
    return {image, line - image * (uint32_t)p.out_height, (uint32_t)window - line * (uint32_t)p.out_width};
}

/* The window of an answer: its image and its first tap, which may lie outside. */
struct corner {
    int64_t image;
    int h, w;
};
static inline HC_DEVICE corner corner_of(const hc_cuda_conv &p, int64_t window) {
    const place at = place_of(p, window);
    return {at.image, (int)(at.h * p.stride[0] - p.pad[0]), (int)(at.w * p.stride[1] - p.pad[1])};
}

/* The index of the pixel under a tap in its plane; -1 outside. */
static inline HC_DEVICE int64_t pixel_of(const hc_cuda_conv &p, const corner &c, int tap) {
    const int r = tap / (int)p.s;
    const int64_t h = c.h + r * p.dilation[0], w = c.w + (tap - r * (int)p.s) * p.dilation[1];
    return h < 0 || h >= p.height || w < 0 || w >= p.width ? -1 : h * p.width + w;
}

/* Answers of a window. */
struct answers {
    const hc_cuda_conv &p;
    const bool is_valid;
    const place at;
    char *const y;

    HC_DEVICE answers(const hc_cuda_conv &given, int64_t window)
        : p(given), is_valid(window < p.windows), at(place_of(p, window)),
          y(p.y + at.image * p.y_stride[0] + at.h * p.y_stride[2] + at.w * p.y_stride[3]) {}
    /* Bias, and what is below 0 becomes 0; NaN stays. */
    HC_DEVICE void store(int64_t filter, float value) const {
        if (p.bias)
            value += p.bias[filter];
        if (p.relu && value <= 0)
            value = 0;
        *(float *)(y + filter * p.y_stride[1]) = value;
    }
};

static inline HC_DEVICE float canonical(float value) { return value != value ? hc_f32_from_bits(0x7fc00000) : value; }

static inline HC_DEVICE float scale_at(const hc_cuda_conv_integers &p, const corner &c, int64_t group,
                                       int64_t segment) {
    const int tap = (int)(segment / p.pixel_segments);
    const int64_t pixel = pixel_of(p.conv, c, tap), plane = group * p.conv.height * p.conv.width;
    if (pixel < 0)
        return 0;
    return p
        .x_scales[c.image * p.image_segments + (plane + pixel) * p.pixel_segments + segment - tap * p.pixel_segments];
}

/* Rows are windows of the group blockIdx.z. */
template <int N> struct windows : columns_of_bytes {
    typedef hc_cuda_conv_integers params;
    const params &p;
    corner at[N];

    HC_DEVICE windows(const params &given, int64_t first) : p(given) {
#pragma unroll
        for (int i = 0; i < N; i++)
            at[i] =
                corner_of(p.conv, hc_min(first + threadIdx.x / PIECES + i * (blockDim.x / PIECES), p.conv.windows - 1));
    }
    HC_DEVICE void copy(void *to, int i, int step) const {
        const int64_t k = (int64_t)step * STEP + threadIdx.x % PIECES * 16;
        const int tap = (int)((uint32_t)k / (uint32_t)p.pixel);
        const int64_t inside = k - tap * p.pixel, plane = blockIdx.z * p.conv.height * p.conv.width;
        const int64_t pixel = tap < p.conv.taps ? pixel_of(p.conv, at[i], tap) : -1;
        const int8_t *image = p.x + at[i].image * p.image_bytes;
        hc_copy_16_or_zeros(to, pixel < 0 ? image : image + (plane + pixel) * p.pixel + inside, pixel >= 0);
    }
    static HC_DEVICE rows_of_w w_of(const params &p) {
        return {(const unsigned char *)p.w + blockIdx.z * p.conv.filters * p.ld, p.conv.filters, p.ld};
    }
    template <int ROWS> struct x_scales {
        const params &p;
        const int64_t first;
        int64_t segment;

        HC_DEVICE x_scales(const params &given, int64_t row, int own) : p(given), first(row + own), segment(0) {}
        HC_DEVICE void next() { segment++; }
        HC_DEVICE float at(int i) const {
            return scale_at(p, corner_of(p.conv, hc_min(first + sum_row(i), p.conv.windows - 1)), blockIdx.z, segment);
        }
    };
    template <int COLUMNS> struct w_scales : scales_of<COLUMNS> {
        HC_DEVICE w_scales(const params &p, int64_t first, int own)
            : scales_of<COLUMNS>(p.w_scales + blockIdx.z * p.conv.filters * p.segments, first, p.conv.filters,
                                 p.segments, [=](int i) { return own + sum_column(i); }) {}
    };
    struct line : answers {
        const params &all;
        const float scale; /* of a folded row */

        HC_DEVICE line(const params &given, int64_t row)
            : answers(given.conv, row), all(given), scale(is_valid ? given.x_scales[at.image] : 0) {}
        template <bool is_grouped> HC_DEVICE void store(int64_t column, int32_t dot, float sum) const {
            if (!is_valid || column >= p.filters)
                return;
            const int64_t filter = blockIdx.z * p.filters + column;
            answers::store(filter, is_grouped ? canonical(sum)
                                              : (float)((double)scale * (double)all.w_scales[filter] * (double)dot));
        }
    };
};

static inline HC_DEVICE int64_t integer_at(const int8_t *from, int limbs, int64_t limb_bytes) {
    int64_t value = from[(limbs - 1) * limb_bytes];
    for (int i = limbs - 2; i >= 0; i--)
        value = value * 256 + (uint8_t)from[i * limb_bytes];
    return value;
}

/* The taps of a window, in order. */
struct taps {
    const hc_cuda_conv &p;
    int64_t image;
    int h, w;

    HC_DEVICE taps(const hc_cuda_conv &given, uint32_t window) : p(given) {
        const corner c = corner_of(p, window);
        image = c.image, h = c.h, w = c.w;
    }
    /* Calls visit(row, column, whether it lies inside). */
    template <int AT_ONCE, typename visitor> HC_DEVICE void visit(visitor visit) const {
        const int s = (int)p.s, r = (int)p.taps / s, height = (int)p.height, width = (int)p.width;
        HC_SHORT_LOOP
        for (int i = 0, y = h; i < r; i++, y += (int)p.dilation[0])
#pragma unroll AT_ONCE
            for (int j = 0, x = w; j < s; j++, x += (int)p.dilation[1])
                visit(y, x, (uint32_t)y < (uint32_t)height && (uint32_t)x < (uint32_t)width);
    }
};

/* A thread an answer; neighbouring threads have neighbouring windows. */
template <bool is_grouped> static inline HC_DEVICE void direct(const hc_cuda_conv_integers &p) {
    const hc_cuda_conv &v = p.conv;
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= v.windows * v.filters * v.groups)
        return;
    const uint32_t filter = p.is_small ? (uint32_t)index / (uint32_t)v.windows : (uint32_t)(index / v.windows);
    const uint32_t window = (uint32_t)(index - (int64_t)filter * v.windows), group = filter / (uint32_t)v.filters;
    const taps taps(v, window);
    const int64_t first = group * v.height * v.width;
    const int8_t *image = p.x + taps.image * p.image_bytes, *w = p.w + filter * p.ld;
    const float *x_scale = p.x_scales + taps.image * (is_grouped ? p.image_segments : 1);
    const float *w_scale = p.w_scales + filter * (is_grouped ? p.segments : 1);
    int64_t dot = 0;
    float sum = 0;
    taps.template visit<1>([&](int h, int x, bool is_valid) {
        const int64_t pixel = first + h * v.width + x;
        const int8_t *from = image + pixel * p.pixel;
        HC_SHORT_LOOP
        for (int s = 0; s < (int)p.pixel_segments; s++) {
            if (!is_valid)
                w += p.length;
            else if (p.x_limbs == 1 && p.w_limbs == 1) {
                int32_t part = 0; /* of at most 2^16 products */
                HC_SHORT_LOOP
                for (int i = 0; i < p.length; i++) {
                    part += *from++ * *w++;
                    if (i % 65536 == 65535) {
                        dot += part;
                        part = 0;
                    }
                }
                dot += part;
            } else {
                HC_SHORT_LOOP
                for (int i = 0; i < p.length; i++)
                    dot += integer_at(from++, p.x_limbs, p.x_limb_bytes) * integer_at(w++, p.w_limbs, p.w_limb_bytes);
            }
            if (is_grouped) {
                const float scale = (is_valid ? x_scale[pixel * p.pixel_segments + s] : 0) * *w_scale++;
                sum = fmaf(scale, (float)dot, sum);
                dot = 0;
            }
        }
    });
    answers(v, window).store(filter,
                             is_grouped ? canonical(sum) : (float)((double)*x_scale * (double)*w_scale * (double)dot));
}

} // namespace

HC_KERNEL(hc_conv_s8_folded, hc_cuda_conv_integers, 128) { tile<false, 64, 64, 32, 32, 3, windows>::run(p); }
HC_KERNEL(hc_conv_s8_grouped, hc_cuda_conv_integers, 128, 3) { tile<true, 64, 64, 32, 32, 3, windows>::run(p); }
HC_KERNEL(hc_conv_direct_folded, hc_cuda_conv_integers, 128, 1) { direct<false>(p); }
HC_KERNEL(hc_conv_direct_grouped, hc_cuda_conv_integers, 128, 1) { direct<true>(p); }

/* Floats: rows of x are windows of the group blockIdx.z, their columns (tap, channel) as rows of w have them. */
namespace {

struct floats {
    typedef hc_cuda_conv_floats params;
    static HC_DEVICE int64_t steps_of_k(const params &p) { return p.conv.taps * p.conv.channels; }
    static HC_DEVICE bool is_valid(float) { return true; }
    template <int N, int TURN> struct x {
        const params &p;
        const char *image[N]; /* at the first channel of the group */
        int h[N], w[N];       /* of the first tap */
        HC_DEVICE x(const params &given, int64_t block, int own) : p(given) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                const corner at = corner_of(p.conv, hc_min(block + own + i * TURN, p.conv.windows - 1));
                image[i] = p.x + at.image * p.x_stride[0] + blockIdx.z * p.conv.channels * p.x_stride[1];
                h[i] = at.h;
                w[i] = at.w;
            }
        }
        /* The value of a column, or NULL where the tap lies outside. */
        HC_DEVICE const char *at(int i, int k) const {
            const uint32_t tap = (uint32_t)k / (uint32_t)p.conv.channels, r = tap / (uint32_t)p.conv.s;
            const int y = h[i] + (int)r * (int)p.conv.dilation[0];
            const int x = w[i] + (int)(tap - r * (uint32_t)p.conv.s) * (int)p.conv.dilation[1];
            const bool is_valid = (uint32_t)y < (uint32_t)p.conv.height && (uint32_t)x < (uint32_t)p.conv.width &&
                                  tap < (uint32_t)p.conv.taps;
            return is_valid ? image[i] + y * p.x_stride[2] + x * p.x_stride[3] +
                                  (k - (int)tap * (int)p.conv.channels) * p.x_stride[1]
                            : NULL;
        }
        HC_DEVICE void copy(void *to, int i, int k) const {
            const char *from = at(i, k);
            if (p.has_16)
                return hc_copy_16_or_zeros(to, from ? from : image[i], from);
            alignas(16) float values[4];
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (!p.has_fours && c > 0)
                    from = at(i, k + c);
                values[c] = from ? hc_load_value(from, p.x_dtype) : 0;
                from = from ? from + p.x_stride[1] : from;
            }
            hc_store_16(to, values);
        }
    };
    template <int N, int TURN> struct w {
        const params &p;
        const float *const from;
        const int left, all;
        HC_DEVICE w(const params &given, int64_t block, int own)
            : p(given), from(p.w + (blockIdx.z * p.conv.filters + block + own) * steps_of_k(p)),
              left((int)(p.conv.filters - block) - own), all((int)steps_of_k(p)) {}
        HC_DEVICE void copy(void *to, int i, int k) const {
            const float *piece = from + i * TURN * (int64_t)all + k;
            const bool is_valid = i * TURN < left && k < all;
            if (p.has_fours)
                return hc_copy_16_or_zeros(to, is_valid ? piece : p.w, is_valid);
            HC_SHORT_LOOP
            for (int c = 0; c < 4; c++)
                ((float *)to)[c] = is_valid && k + c < all ? piece[c] : 0;
        }
    };
    /* Neighbouring threads store neighbours. */
    template <int ROWS, int COLUMNS, int THREADS, int LD, int, int>
    static HC_DEVICE void store(const params &p, int64_t window, int64_t filter, const float *y) {
        const int across = p.by_filters ? COLUMNS : ROWS, first = (int)threadIdx.x / across;
        const int own = (int)threadIdx.x % across, all = ROWS * COLUMNS / across;
        HC_SHORT_LOOP
        for (int i = first; i < all; i += THREADS / across) {
            const int row = p.by_filters ? i : own, column = p.by_filters ? own : i;
            const answers line(p.conv, window + row);
            if (line.is_valid && filter + column < p.conv.filters)
                line.store(blockIdx.z * p.conv.filters + filter + column, y[row * LD + column]);
        }
    }
};

} // namespace

HC_KERNEL(hc_conv_f32, hc_cuda_conv_floats, 256, 2) { chains<128, 64, 8, 4, 4, 16, 3, 2, floats>::run(p); }

/* A thread has an answer; neighbouring threads have neighbouring windows, or filters where these are neighbours in memory. */
HC_KERNEL(hc_conv_direct_f32, hc_cuda_conv_floats, 128) {
    const hc_cuda_conv &v = p.conv;
    const uint32_t filters = (uint32_t)(v.filters * v.groups), across = p.by_filters ? filters : (uint32_t)v.windows;
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t slow = p.is_small ? (uint32_t)index / across : (uint32_t)(index / across);
    const uint32_t fast = (uint32_t)(index - (int64_t)slow * across);
    const uint32_t filter = p.by_filters ? fast : slow, window = p.by_filters ? slow : fast;
    if (filter >= filters || window >= (uint32_t)v.windows)
        return;
    const taps taps(v, window);
    const char *image = p.x + taps.image * p.x_stride[0] + filter / (uint32_t)v.filters * v.channels * p.x_stride[1];
    const float *w = p.w + filter * (v.taps * v.channels);
    float sum = 0;
    taps.template visit<3>([&](int h, int x, bool is_valid) {
        const char *from = image + h * p.x_stride[2] + x * p.x_stride[3];
        sum = fmaf(is_valid ? hc_load_value(from, p.x_dtype) : 0.0f, *w++, sum);
        HC_SHORT_LOOP
        for (int i = 1; i < (int)v.channels; i++)
            sum = fmaf(is_valid ? hc_load_value(from + i * p.x_stride[1], p.x_dtype) : 0.0f, *w++, sum);
    });
    answers(v, window).store(filter, sum);
}
