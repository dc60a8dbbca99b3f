/* The SIMD set that a *_simd.c is compiled for. setup.py compiles such a file once for each set of the machine, with the
 * set's flags and -DHC_SIMD_<set>. The header of a set gives the primitives simd_*; loops over rows and formats are
 * written with these once for all sets.
 *
 *   const hc_format_simd HC_SIMD_TABLE(int) = {HC_SIMD_SET, .encode = encode, ...};      hc_int_avx2, hc_int_avx512
 */
#ifndef HC_SIMD_H
#define HC_SIMD_H

#include "base/cpu.h"

#if defined(HC_SIMD_avx512)
#include "formats/simd/avx512.h"
#define HC_SIMD_TABLE(format) hc_##format##_avx512
#define HC_SIMD_SET .isa = "avx512", .needs = HC_ISA_AVX512 | HC_ISA_AVX2
#elif defined(HC_SIMD_avx2)
#include "formats/simd/avx2.h"
#define HC_SIMD_TABLE(format) hc_##format##_avx2
#define HC_SIMD_SET .isa = "avx2", .needs = HC_ISA_AVX2
#else
#error "a *_simd.c is compiled with -DHC_SIMD_<set>, see SIMD_SETS of setup.py"
#endif

#endif
