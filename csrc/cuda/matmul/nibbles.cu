/* Integer matmul with weights of 4 bits, which stay packed until they are in registers: the tiles of gemm.cu, whatever the rows.
 *
 * Of 32 columns of k, lane t of a row of w needs those from 4 t and from 16 + 4 t on: two bytes each, joined to a word. Folded, a
 * group of 16 is either half of them.
 */
#include "cuda/matmul/nibbles.h"
#include "cuda/matmul/tile.h"

namespace {

template <int N, bool is_grouped> struct nibbles : rows_of_bytes<N, hc_cuda_gemm_s4> {
    enum { W_PIECES = STEP / 32 };
    typedef hc_cuda_gemm_s4 params;
    using rows_of_bytes<N, params>::rows_of_bytes;
    static HC_DEVICE rows_of_w w_of(const params &p) { return {p.w, p.n, p.w_stride}; }

    template <int NI> struct fragments {
        const uint8_t *from[NI]; /* scales of this lane's rows of w, two bytes a step */
        uint32_t scales[NI], next[NI];
        const int own;

        HC_DEVICE fragments(const params &p, int64_t column)
            : own(hc_piece_place<W_PIECES>(hc_lane() / 4, 0) + (int)threadIdx.x % 4 * 2) {
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const int64_t row = hc_min(column + j * 8 + hc_lane() / 4, p.n - 1);
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
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const unsigned char *at = w + j * 8 * (STEP / 2) + (own ^ k / 2);
                const uint32_t word = *(const uint16_t *)at | (uint32_t)*(const uint16_t *)(at + 8) << 16;
                const uint32_t of_k = is_grouped ? 0x11 : scales[j] >> k / 4;
                hc_decode_nibbles(word, of_k & 15, of_k >> 4 & 15, b + j * 2);
            }
        }
        int64_t steps;
    };

    template <int COLUMNS> struct w_scales : scales_of<COLUMNS> {
        HC_DEVICE w_scales(const params &p, int64_t first, int own)
            : scales_of<COLUMNS>((const float *)p.w_scales, first, p.n, p.w_scales_stride / (int64_t)sizeof(float),
                                 [=](int i) { return own + sum_column(i); }) {}
    };
};
template <int N> struct folded : nibbles<N, false> {
    using nibbles<N, false>::nibbles;
};
template <int N> struct grouped : nibbles<N, true> {
    using nibbles<N, true>::nibbles;
};

} // namespace

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ != 900 /* sm_90a has warpgroup_90a.cu */
HC_KERNEL(hc_gemm_nibbles_128_folded, hc_cuda_gemm_s4, 256, 2) { tile<false, 128, 128, 64, 32, 3, folded>::run(p); }
HC_KERNEL(hc_gemm_nibbles_128_grouped, hc_cuda_gemm_s4, 256) { tile<true, 128, 128, 64, 32, 3, grouped>::run(p); }
#endif
HC_KERNEL(hc_gemm_nibbles_64_grouped, hc_cuda_gemm_s4, 128) { tile<true, 64, 64, 32, 32, 4, grouped>::run(p); }
