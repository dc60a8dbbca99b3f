/* Vector blockIdx.y of floats times what a pattern 2:4 kept, by words of codes; lanes as in hc_gemv_kept (gemv.h). x is whole in shared
 * memory, with a gap of 16 bytes after 128, so that lanes read different banks.
 */
#ifndef HC_CUDA_KEPT_WORDS_H
#define HC_CUDA_KEPT_WORDS_H

#include "cuda/formats/words.h"

template <hc_gemv_codes CODES, typename format, bool has_groups>
static inline HC_DEVICE void hc_gemv_kept_words(const hc_cuda_gemv &p) {
    enum { IN_WORD = CODES == HC_GEMV_BYTES ? 4 : 8, LANES = has_groups ? 16 : 8, BITS = 32 / IN_WORD };
    float *const x = (float *)hc_shared();
    const char *const from = p.x.data + blockIdx.y * p.x.rows.stride[0];
    HC_SHORT_LOOP
    for (int at = (int)threadIdx.x * 4; at < (int)p.geometry.whole_length; at += (int)blockDim.x * 4)
        hc_copy_16(x + at + at / 32 * 4, from + at * (int)sizeof(float));
    hc_copy_commit();
    hc_copy_wait<0>();
    hc_barrier();
    hc_gemv_reader<format, has_groups, CODES, 1, 1> own(p, NULL);
    const uint8_t *const codes = own.parts[0].part[HC_CODES].data;
    const uint8_t *const places = own.parts[0].part[HC_METADATA].data;
    hc_gemv_word_of<CODES> word;
    if constexpr (has_groups) {
        const int group = (int)p.geometry.group;
        for (int item = own.lane; item < (int)p.geometry.groups; item += LANES) {
            float chain = 0, unused;
            for (int c = item * group; c < (item + 1) * group; c += IN_WORD) {
                word.set(*(const uint32_t *)(codes + c * BITS / 8));
                const uint32_t place = IN_WORD == 8 ? *(const uint16_t *)(places + c / 4) : places[c / 4];
                const float *const window = x + 2 * c + 2 * c / 32 * 4; /* does not cross a gap */
#pragma unroll
                for (int i = 0; i < IN_WORD; i++)
                    chain = fmaf(window[i / 2 * 4 + (place >> 2 * i & 3)], word.code(NULL, i / 4 * 4, i % 4), chain);
            }
            own.sums[0][0][0] = fmaf(own.scale_of(0, item, &unused), chain, own.sums[0][0][0]);
        }
    } else {
#pragma unroll(4)
        for (int first = own.lane * 8; first < (int)p.geometry.whole_length; first += 64) {
            const uint8_t *const at = codes + first / 2 * BITS / 8;
            word.set(CODES == HC_GEMV_BYTES ? *(const uint32_t *)at : *(const uint16_t *)at);
            const uint32_t place = places[first / 8];
            alignas(16) float eight[8];
            memcpy(eight, __builtin_assume_aligned(x + first + first / 32 * 4, 16), sizeof eight);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const float code = word.code(NULL, 0, c);
#pragma unroll
                for (int i = c / 2 * 4; i < c / 2 * 4 + 4; i++) /* a zero adds nothing, whatever x holds there */
                    if ((int)(place >> 2 * c & 3) == i % 4)
                        own.sums[0][0][i] = fmaf(eight[i], code, own.sums[0][0][i]);
            }
        }
    }
    hc_gemv_store<has_groups>(p, own.row_of(0), own.row_scale[0], own.sums[0], blockIdx.y);
}

#define HC_KEPT_WORDS(family, format, kinds, bits, codes)                                                              \
    HC_KERNEL(hc_gemv_kept_##family##_b##bits, hc_cuda_gemv, 128, 5) {                                                 \
        HC_GEMV_KINDS(kinds, hc_gemv_kept_words, codes, format);                                                       \
    }

#endif
