/* Each instruction that device.h names, once, on given words: whoever launches compares with its definition. So are the flags that
 * nvcc was given, by operations that they change.
 *
 *   in    0 to 3 c, 4 to 7 a, 8 to 11 b, 12 places of a 2:4 pattern, 13 to 16 what is copied and loaded
 *   out   0 mma s8, 4 mma of bytes by sign (u u, s u, u s), 16 sparse mma, 20 ldmatrix, 24 shuffles by 1 to 16,
 *         29 copies, 33 copies or zeros, 37 loads, 41 maximum, 42 or, 43 x y + z, fma, x / y, root of |x|, x y / 2^120 (floats), 48 double to float,
 *         49 mma of the bfloat16 that the lowest signed bytes of halves of a and b are, added to c as floats,
 *         53 bytes of the first words of a and b, chosen by the word of places, 54 a & b | c, 55 the low float16 of c as a float
 */
#include "cuda/definition.h"
#include "cuda/device.h"

/* Two bfloat16, each the value of the lowest byte of a half. */
static inline HC_DEVICE uint32_t halves_of(uint32_t word) {
    const uint32_t low = hc_f32_bits((float)(int8_t)word), high = hc_f32_bits((float)(int8_t)(word >> 16));
    return low >> 16 | (high & 0xffff0000u);
}

HC_KERNEL(hc_check_instructions, hc_cuda_check, 32) {
    const int lane = (int)threadIdx.x;
    uint32_t word[HC_CUDA_CHECK_IN], *out = p.out + lane;
    for (int i = 0; i < HC_CUDA_CHECK_IN; i++)
        word[i] = p.in[i * HC_WARP + lane];
    const uint32_t *c = word, *a = word + 4, *b = word + 8;
    int32_t sums[5][4];
    for (int i = 0; i < 5; i++)
        memcpy(sums[i], c, sizeof sums[i]);
    hc_mma_s8(sums[0], a, b);
    for (int i = 0; i < 3; i++)
        hc_mma_bytes(sums[1 + i], a, b, i == 1, i == 2);
    hc_mma_sparse_s8(sums[4], a, b, word[12]);
    for (int i = 0; i < 5; i++)
        for (int r = 0; r < 4; r++)
            out[(i * 4 + r) * 32] = (uint32_t)sums[i][r];

    uint32_t *shared = (uint32_t *)hc_shared(), loaded[4];
    for (int i = 0; i < 4; i++)
        shared[lane * 4 + i] = word[13 + i];
    hc_barrier();
    hc_load_matrix_x4(loaded, shared + lane * 4);
    for (int i = 0; i < 4; i++)
        out[(20 + i) * 32] = loaded[i];
    for (int i = 0; i < 5; i++)
        out[(24 + i) * 32] = hc_shuffle_xor(word[4], 1 << i);
    hc_barrier();

    const uint32_t *from = p.in + 13 * 32 + lane * 4;
    hc_copy_16(shared + lane * 4, from);
    hc_copy_commit();
    hc_copy_16_or_zeros(shared + 128 + lane * 4, from, lane % 2 == 0);
    hc_copy_commit();
    hc_copy_wait<0>();
    hc_barrier();
    float four[4];
    uint32_t same[4];
    hc_load_16(four, from);
    hc_load_16_once(same, from);
    for (int i = 0; i < 4; i++) {
        out[(29 + i) * 32] = shared[lane * 4 + i];
        out[(33 + i) * 32] = shared[128 + lane * 4 + i];
        out[(37 + i) * 32] = same[i] == hc_f32_bits(four[i]) ? same[i] : ~hc_f32_bits(four[i]);
    }
    out[41 * 32] = out[42 * 32] = 0;
    hc_barrier();
    hc_atomic_max(p.out + 41 * 32, word[4]);
    hc_atomic_or(p.out + 42 * 32, word[4]);

    const float x = hc_f32_from_bits(word[4]), y = hc_f32_from_bits(word[5]), z = hc_f32_from_bits(word[6]);
    const float found[] = {x * y + z,       fmaf(x, y, z),          x / y,
                           sqrtf(fabsf(x)), x * y * 7.5231638e-37f, (float)((double)x * (double)y)};
    for (int i = 0; i < 6; i++)
        out[(43 + i) * 32] = found[i] != found[i] ? 0x7fc00000 : hc_f32_bits(found[i]);
    uint32_t left[4], right[2];
    for (int i = 0; i < 4; i++) {
        left[i] = halves_of(a[i]);
        four[i] = (float)(int32_t)c[i];
    }
    for (int i = 0; i < 2; i++)
        right[i] = halves_of(b[i]);
    hc_mma_bf16(four, left, right);
    for (int i = 0; i < 4; i++)
        out[(49 + i) * 32] = hc_f32_bits(four[i]);
    out[53 * 32] = hc_permute_bytes(a[0], b[0], word[12] & 0x7777);
    out[54 * 32] = hc_and_xor(a[0], b[0], c[0]);
    const float half = hc_half_value((uint16_t)c[0]);
    out[55 * 32] = half != half ? 0x7fc00000 : hc_f32_bits(half);
}
