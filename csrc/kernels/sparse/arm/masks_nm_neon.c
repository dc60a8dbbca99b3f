/* masks_nm of 2:4, 1:4 and 1:16, whose blocks are nibbles or halves of them.
 *
 *   2:4  a nibble is a block: a table gives its 4 bits
 *   1:4  a nibble is two blocks: a table gives their 8 bits
 *   1:16 a nibble is a block
 */
#include "kernels/kernel.h"

#include <arm_neon.h>

static int64_t two_of_four(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    static const uint8_t QUADS[16] = {1, 3, 5, 9, 3, 2, 6, 10, 5, 6, 4, 12, 9, 10, 12, 8};
    const uint8x16_t quads = vld1q_u8(QUADS);
    int64_t word = 0;
    for (; word + 2 <= words; word += 2) {
        const uint8x16_t bytes = vld1q_u8(metadata + word * 8);
        const uint8x16_t low = vqtbl1q_u8(quads, vandq_u8(bytes, vdupq_n_u8(15)));
        const uint8x16_t both = vsliq_n_u8(low, vqtbl1q_u8(quads, vshrq_n_u8(bytes, 4)), 4);
        vst1q_u64(masks + word, vreinterpretq_u64_u8(both));
    }
    return word;
}

static int64_t one_of_four(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    static const uint8_t PAIRS[16] = {0x11, 0x12, 0x14, 0x18, 0x21, 0x22, 0x24, 0x28,
                                      0x41, 0x42, 0x44, 0x48, 0x81, 0x82, 0x84, 0x88};
    const uint8x16_t pairs = vld1q_u8(PAIRS);
    int64_t word = 0;
    for (; word + 2 <= words; word += 2) {
        const uint8x8_t bytes = vld1_u8(metadata + word * 4);
        const uint8x8_t low = vqtbl1_u8(pairs, vand_u8(bytes, vdup_n_u8(15)));
        const uint8x8_t high = vqtbl1_u8(pairs, vshr_n_u8(bytes, 4));
        vst1q_u64(masks + word, vreinterpretq_u64_u8(vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high))));
    }
    return word;
}

static int64_t one_of_sixteen(const uint8_t *metadata, int64_t words, uint64_t *masks) {
    for (int64_t word = 0; word < words; word++) {
        const unsigned low = metadata[word * 2], high = metadata[word * 2 + 1];
        masks[word] =
            1ull << (low & 15) | 1ull << (16 + (low >> 4)) | 1ull << (32 + (high & 15)) | 1ull << (48 + (high >> 4));
    }
    return words;
}

int64_t hc_masks_nm_neon(int n, int m, const uint8_t *metadata, int64_t bytes, int64_t words, uint64_t *masks) {
    (void)bytes;
    if (m == 4 && n == 2)
        return two_of_four(metadata, words, masks);
    if (m == 4 && n == 1)
        return one_of_four(metadata, words, masks);
    if (m == 16 && n == 1)
        return one_of_sixteen(metadata, words, masks);
    return 0;
}
