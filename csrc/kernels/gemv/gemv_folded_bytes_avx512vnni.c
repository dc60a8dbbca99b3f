/* gemv_folded_bytes. */
#include "kernels/kernel.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int64_t bytes; /* bytes of codes per register */
} hc_code_loader;

/* Loads 64 bytes of codes, of which the row has `left`. */
INLINE __m512i load_codes(const hc_code_loader *loader, const uint8_t *codes, int64_t left) {
    (void)loader;
    return left >= 64 ? _mm512_loadu_si512(codes) : _mm512_maskz_loadu_epi8((1ull << left) - 1, codes);
}

enum { IS_PACKED = 0 };
#include "kernels/gemv/gemv_folded_bytes_avx512.h"

CASES(0)
CASES(1)

void hc_gemv_folded_bytes_avx512vnni(const hc_gemv_folded_bytes_args *args) {
    const hc_code_loader bytes = {64};
    args->is_small ? folded_1(args, &bytes) : folded_0(args, &bytes);
}
