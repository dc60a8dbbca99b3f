/* gemv_folded_packed. */
#include "kernels/gemv/gemv_packed_avx512.h"

enum { IS_PACKED = 1 };
#include "kernels/gemv/gemv_folded_bytes_avx512.h"

CASES(0)
CASES(1)

void hc_gemv_folded_packed_avx512vbmi(const hc_gemv_folded_bytes_args *args) {
    const hc_code_loader loader = make_loader(args->bits);
    args->is_small ? folded_1(args, &loader) : folded_0(args, &loader);
}
