/* gemv_scaled, gemv_scaled_zeros, gemv_turned and gemv_folded_bytes for codes of 8 bits, the first two also of 4 bits. */
#include "kernels/gemv/gemv_halves_avx512.h"
#include "kernels/kernel.h"

enum { IS_PACKED = 0 };

typedef struct {
    int64_t bytes; /* bytes of codes per register */
} hc_code_loader;

/* Loads 64 bytes of codes, of which the row has `left`. */
INLINE __m512i load_plain(const uint8_t *codes, int64_t left) {
    return left >= 64 ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8((1ull << left) - 1, codes);
}

INLINE __m512i load_flipped(const hc_code_loader *loader, const uint8_t *codes, int64_t left, __m512i flip) {
    (void)loader;
    return _mm512_xor_si512(load_plain(codes, left), flip);
}

INLINE __m512i load_codes(const hc_code_loader *loader, const uint8_t *codes, int64_t left) {
    (void)loader;
    __m512i stored = load_plain(codes, left);
    __asm__("" : "+v"(stored)); /* otherwise gcc loads the codes twice, which is slow if they are misaligned */
    return stored;
}

#include "kernels/gemv/gemv_folded_bytes_avx512.h"

CASES(0)
CASES(1)

void hc_gemv_scaled_avx512vnni(const hc_gemv_scaled_args *args) {
    const hc_code_loader bytes = {64};
    args->bits == 4 && args->table ? gemv_scaled_bits(args, &bytes, 4, true, true, false)
    : args->bits == 4              ? gemv_scaled_bits(args, &bytes, 4, false, true, false)
    : args->is_small               ? gemv_scaled_bits(args, &bytes, 8, false, true, false)
                                   : gemv_scaled_bits(args, &bytes, 8, false, false, false);
}

void hc_gemv_scaled_zeros_avx512vnni(const hc_gemv_scaled_args *args) {
    const hc_code_loader bytes = {64};
    args->bits == 4 ? gemv_scaled_bits(args, &bytes, 4, false, true, true)
                    : gemv_scaled_bits(args, &bytes, 8, false, false, true);
}

void hc_gemv_turned_avx512vnni(const hc_gemv_scaled_args *args) { turned_sums(args, &(hc_code_loader){64}); }

void hc_gemv_folded_bytes_avx512vnni(const hc_gemv_folded_bytes_args *args) {
    const hc_code_loader bytes = {64};
    args->is_small ? folded_1(args, &bytes) : folded_0(args, &bytes);
}
