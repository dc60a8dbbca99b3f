/* The SIMD set for which a *_simd.c file is compiled. setup.py compiles such a file once per set of the machine, with
 * the set's flags and -DHC_SIMD_<set>. Three headers of a set provide the primitives: lanes_* are vectors of
 * floats, simd_* encode and decode. Loops over rows and formats use them, and are written once for all sets.
 *
 *   HC_SIMD_TABLE(int, .encode = encode, .values = decode_values);     defines hc_int_avx2, hc_int_neon ...
 */
#ifndef HC_SIMD_H
#define HC_SIMD_H

#include "base/cpu.h"

#if defined(HC_SIMD_avx512)
#include "base/lanes/avx512.h"
#include "formats/simd/avx512_decode.h"
#include "formats/simd/avx512_encode.h"
#include "formats/simd/x86_planes.h"
#define HC_SIMD_TABLE(format, ...)                                                                                     \
    const hc_format_simd hc_##format##_avx512 = {.isa = "avx512", .needs = HC_ISA_AVX512 | HC_ISA_AVX2, __VA_ARGS__}
#elif defined(HC_SIMD_avx2)
#include "base/lanes/avx2.h"
#include "formats/simd/avx2_decode.h"
#include "formats/simd/avx2_encode.h"
#include "formats/simd/x86_planes.h"
#define HC_SIMD_TABLE(format, ...)                                                                                     \
    const hc_format_simd hc_##format##_avx2 = {.isa = "avx2", .needs = HC_ISA_AVX2, __VA_ARGS__}
#elif defined(HC_SIMD_neon)
#include "base/lanes/neon.h"
#include "formats/simd/arm_planes.h"
#include "formats/simd/neon_decode.h"
#include "formats/simd/neon_encode.h"
#define HC_SIMD_TABLE(format, ...)                                                                                     \
    const hc_format_simd hc_##format##_neon = {.isa = "neon", .needs = HC_ISA_NEON, __VA_ARGS__}
#else
#error "a *_simd.c is compiled with -DHC_SIMD_<set>, see SIMD_SETS of setup.py"
#endif

#endif
