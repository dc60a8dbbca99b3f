/* Instruction sets of the processor, as a mask. A kernel's `needs` is such a mask; it may run when
 * (needs & hc_cpu_isa() & run.isa) == needs. Names are the public ones of `heterocompute.use(isa=...)`.
 */
#ifndef HC_CPU_H
#define HC_CPU_H

#include "base/base.h"

enum {
    HC_ISA_SCALAR = 0,
    HC_ISA_AVX2 = 1 << 0,       /* AVX2, FMA, F16C, BMI2 */
    HC_ISA_AVXVNNI = 1 << 1,    /* + avx2 */
    HC_ISA_AVX512 = 1 << 2,     /* F, BW, DQ, VL, CD, + avx2 */
    HC_ISA_AVX512VNNI = 1 << 3, /* + avx512 */
    HC_ISA_AVX512VBMI = 1 << 4, /* + avx512 */
    HC_ISA_AVX512BF16 = 1 << 5, /* + avx512 */
    HC_ISA_AMX = 1 << 6,        /* tile, int8, bf16, + avx512vnni, avxvnni */
    HC_ISA_NEON = 1 << 7,
    HC_ISA_DOTPROD = 1 << 8, /* sdot, + neon */
    HC_ISA_I8MM = 1 << 9,    /* smmla, + dotprod */
};
#define HC_N_ISA 10

/* The mask of this machine: instruction sets that processor and operating system support; detected once. */
uint32_t hc_cpu_isa(void);

/* `name` with all sets that it includes ("avx512vnni" -> avx512vnni | avx512 | avx2); false for an unknown name. */
bool hc_isa_from_name(const char *name, uint32_t *mask);

/* The name of one bit, or "scalar" for 0. */
const char *hc_isa_name(uint32_t bit);

/* The kind of processor, by which costs are stored: vendor, family and model as in HC_PROCESSOR, or 0 if unknown;
 * detected once. The model is used for Intel only, whose family is always 6. For ARM: implementer and part. */
enum { HC_AMD = 1, HC_INTEL, HC_ARM_CORE };
#define HC_PROCESSOR(vendor, family, model) ((uint32_t)(vendor) << 28 | (uint32_t)(family) << 16 | (uint32_t)(model))
uint32_t hc_cpu_processor(void);

#define HC_MAX_THREADS 256 /* of a call */

/* Processors that this thread may run on, by its affinity and the quota of its control group: 1 to HC_MAX_THREADS. */
int hc_processors(void);

/* Number of threads of a call. `wanted` 0 stands for all processors, or for one if there are so few multiply-adds or
 * values that a second thread is never faster. */
int hc_threads_for(int wanted, double work);

#endif
