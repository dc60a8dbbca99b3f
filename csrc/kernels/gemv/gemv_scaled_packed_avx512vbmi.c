/* gemv_scaled_packed, gemv_turned_packed and gemv_folded_packed: eight codes are `bits` bytes. vpermb copies those bytes
 * to 64-bit lanes, and vpmultishiftqb moves every code's bits to a byte, as in gemv_unpack, but without writing the bytes
 * to memory.
 */
#include "kernels/gemv/gemv_halves_avx512.h"
#include "kernels/kernel.h"

enum { IS_PACKED = 1 };

typedef struct {
    int64_t bytes; /* bytes of codes per register */
    __m512i place, shift, mask;
} hc_code_loader;

/* Every code and other bits in a byte of their own: 64 codes, of which the row has `left` bytes. */
INLINE __m512i spread_codes(const hc_code_loader *loader, const uint8_t *codes, int64_t left) {
    const __m512i stored = left >= 64 ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8((1ull << left) - 1, codes);
    return _mm512_multishift_epi64_epi8(loader->shift, _mm512_permutexvar_epi8(loader->place, stored));
}

INLINE __m512i load_codes(const hc_code_loader *loader, const uint8_t *codes, int64_t left) {
    return _mm512_and_si512(spread_codes(loader, codes, left), loader->mask);
}

INLINE __m512i load_flipped(const hc_code_loader *loader, const uint8_t *codes, int64_t left, __m512i flip) {
    return _mm512_ternarylogic_epi32(spread_codes(loader, codes, left), loader->mask, flip, 0x6a);
}

static hc_code_loader make_loader(int code_bits) {
    const uint64_t each = 0x0101010101010101, steps = 0x0706050403020100, bits = (uint64_t)code_bits;
    const __m512i lanes = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i lane_bytes = _mm512_mullo_epi64(lanes, _mm512_set1_epi64((int64_t)(each * bits)));
    return (hc_code_loader){.bytes = 8 * code_bits,
                            .place = _mm512_add_epi8(lane_bytes, _mm512_set1_epi64((int64_t)steps)),
                            .shift = _mm512_set1_epi64((int64_t)(steps * bits)),
                            .mask = _mm512_set1_epi8((char)((1 << bits) - 1))};
}

#include "kernels/gemv/gemv_folded_bytes_avx512.h"

CASES(0)
CASES(1)

void hc_gemv_scaled_packed_avx512vbmi(const hc_gemv_scaled_args *args) {
    const hc_code_loader loader = make_loader(args->bits);
    args->bits <= 6 ? gemv_scaled_bits(args, &loader, 8, false, true, false)
                    : gemv_scaled_bits(args, &loader, 8, false, false, false);
}

void hc_gemv_turned_packed_avx512vbmi(const hc_gemv_scaled_args *args) {
    const hc_code_loader loader = make_loader(args->bits);
    turned_sums(args, &loader);
}

void hc_gemv_folded_packed_avx512vbmi(const hc_gemv_folded_bytes_args *args) {
    const hc_code_loader loader = make_loader(args->bits);
    args->is_small ? folded_1(args, &loader) : folded_0(args, &loader);
}
