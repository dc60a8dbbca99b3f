/* gemv_scaled_packed and gemv_turned_packed. */
#include "kernels/gemv/gemv_packed_avx512.h"

#include "kernels/gemv/gemv_halves_avx512.h"

#include "kernels/gemv/gemv_scaled_avx512.h"

void hc_gemv_scaled_packed_avx512vbmi(const hc_gemv_scaled_args *args) {
    const hc_code_loader loader = make_loader(args->bits);
    args->bits <= 6 ? gemv_scaled_bits(args, &loader, 8, false, true, false)
                    : gemv_scaled_bits(args, &loader, 8, false, false, false);
}

void hc_gemv_turned_packed_avx512vbmi(const hc_gemv_scaled_args *args) {
    const hc_code_loader loader = make_loader(args->bits);
    turned_sums(args, &loader);
}
