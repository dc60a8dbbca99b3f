/* Integer matmul with weights of 4 bits, which stay packed until they are in registers: the tiles of gemm.cu, whatever the rows.
 *
 * Of 32 columns of k, lane t of a row of w needs those from 4 t and from 16 + 4 t on: two bytes each, joined to a word. Folded, a
 * group of 16 is either half of them.
 */
#include "cuda/matmul/nibbles.h"
#include "cuda/matmul/tile.h"

namespace {

template <int N, bool is_grouped> struct nibbles {
    enum { W_PITCH = STEP / 2 + 16, W_PIECES = STEP / 32 }; /* eight rows touch all banks */
    typedef hc_cuda_gemm_s4 params;
    const int8_t *x[N];
    const params &p;

    HC_DEVICE nibbles(const params &given, int64_t row, int pitch) : p(given) {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = p.x + hc_min(row + i * pitch, p.m - 1) * p.ld;
    }
    HC_DEVICE void copy_x(void *to, int i, int64_t k) const { hc_copy_16(to, x[i] + k); }
    HC_DEVICE const void *w_row(int64_t column) const { return p.w + hc_min(column, p.n - 1) * p.w_stride; }

    template <int NI> struct fragments {
        const uint8_t *from[NI]; /* scales of this lane's rows of w, two bytes a step */
        uint32_t scales[NI], next[NI];

        HC_DEVICE fragments(const params &p, int64_t column) {
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const int64_t row = hc_min(column + j * 8 + (int)threadIdx.x % 32 / 4, p.n - 1);
                from[j] = !is_grouped && p.group_scales ? p.group_scales + row * p.group_scales_stride : NULL;
                next[j] = load_scales(j, 0);
            }
            steps = p.ld / STEP;
        }
        HC_DEVICE uint32_t load_scales(int j, int64_t step) const {
            return from[j] ? *(const uint16_t *)(from[j] + step * 2) : 0x1111;
        }
        HC_DEVICE void begin(int64_t step) {
#pragma unroll
            for (int j = 0; j < NI; j++) {
                scales[j] = next[j];
                if (step + 1 < steps)
                    next[j] = load_scales(j, step + 1);
            }
        }
        HC_DEVICE void load(uint32_t b[NI * 2], const unsigned char *w, int k) const {
            const int lane = (int)threadIdx.x % 32;
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const unsigned char *at = w + (j * 8 + lane / 4) * W_PITCH + k / 2 + lane % 4 * 2;
                const uint32_t word = *(const uint16_t *)at | (uint32_t)*(const uint16_t *)(at + 8) << 16;
                const uint32_t of_k = is_grouped ? 0x11 : scales[j] >> k / 4;
                hc_decode_nibbles(word, of_k & 15, of_k >> 4 & 15, b + j * 2);
            }
        }
        int64_t steps;
    };

    static HC_DEVICE float x_scale(const params &p, int64_t row, int64_t segment) { return ::x_scale(p, row, segment); }
    static HC_DEVICE float w_scale(const params &p, int64_t column, int64_t segment) {
        return ::w_scale(p, column, segment);
    }
    typedef line_of<params> line;
};
template <int N> struct folded : nibbles<N, false> {
    using nibbles<N, false>::nibbles;
};
template <int N> struct grouped : nibbles<N, true> {
    using nibbles<N, true>::nibbles;
};

} // namespace

HC_KERNEL(hc_gemm_nibbles_128_folded, hc_cuda_gemm_s4, 256, 2) { tile<false, 128, 128, 64, 32, 3, folded>::run(p); }
HC_KERNEL(hc_gemm_nibbles_128_grouped, hc_cuda_gemm_s4, 256) { tile<true, 128, 128, 64, 32, 3, grouped>::run(p); }
HC_KERNEL(hc_gemm_nibbles_64_grouped, hc_cuda_gemm_s4, 128) { tile<true, 64, 64, 32, 32, 4, grouped>::run(p); }
HC_KERNEL(hc_gemm_nibbles_16_grouped, hc_cuda_gemm_s4, 128) { tile<true, 16, 64, 16, 16, 6, grouped>::run(p); }
