/* The kernels of each family, and records for those that read any format by its record; families.h. */
#include "cuda/formats/families.h"

#include "cuda/steps.h"
#include "formats/format.h"
#include "formats/minifloat.h"
#include "formats/own/own.h"

#include <string.h>

/* In the order of formats.def. NULL: there is no kernel, as for every format that has no line here. words: of codes of 4 and of
 * 8 bits, of one vector, of several, and of a pattern 2:4. by_record: kernels that read such formats are those of "own". */
static const struct {
    const char *module, *kernel[HC_CUDA_N_KERNELS], *words[2][HC_CUDA_N_WORDS_KERNELS];
    bool by_record;
} FAMILIES[N_FAMILIES] = {
#define WORDS(name, bits) "hc_gemv_" #name "_b" #bits "_v1", "hc_gemv_" #name "_b" #bits "_v8"
#define KEPT(name, bits) {WORDS(name, bits), "hc_gemv_kept_" #name "_b" #bits}
#define FAMILY(name, integers, ...)                                                                                    \
    {#name,                                                                                                            \
     {"hc_encode_" #name, "hc_decode_" #name, "hc_gemv_" #name, integers, "hc_chance_" #name, "hc_gemv_kept_" #name},  \
     {__VA_ARGS__},                                                                                                    \
     false}
    [FAMILY_int] = FAMILY(int, "hc_integers_int", KEPT(int, 4), KEPT(int, 8)),
    [FAMILY_vsq] = FAMILY(vsq, "hc_integers_vsq", KEPT(vsq, 4), {WORDS(vsq, 8)}),
    [FAMILY_log] = {"log", {[HC_CUDA_ENCODE] = "hc_encode_log", [HC_CUDA_CHANCE] = "hc_chance_log"}, .by_record = true},
    [FAMILY_float] = FAMILY(float, NULL, {NULL}),
    [FAMILY_mx] = FAMILY(mx, "hc_integers_mx", {WORDS(mx, 4)}),
    [FAMILY_nvfp4] = FAMILY(nvfp4, "hc_integers_nvfp4", {WORDS(nvfp4, 4)}),
    [FAMILY_nf4] = FAMILY(nf4, NULL, {WORDS(nf4, 4)}),
    [FAMILY_ggml] = {"ggml",
                     {"hc_encode_ggml", "hc_decode_ggml", "hc_gemv_ggml", "hc_integers_ggml"},
                     {{WORDS(ggml, 4)}, {WORDS(ggml, 8)}},
                     false},
    [FAMILY_own] = {"own",
                    {[HC_CUDA_DECODE] = "hc_decode_own",
                     [HC_CUDA_INTEGERS] = "hc_integers_own",
                     [HC_CUDA_GEMV_PLAIN] = "hc_gemv_own",
                     [HC_CUDA_GEMV_KEPT] = "hc_gemv_kept_own"},
                    .by_record = true},
#undef FAMILY
#undef KEPT
#undef WORDS
};

/* Integers of a sentence as a format of the catalogue: int, or vsq where scales are integers. False: there is none. */
static bool find_integers(const hc_format *format, const hc_sentence *own, hc_format *found) {
    const hc_stored_form form = hc_form_of(format);
    if (!hc_form_is_integers(&form) || !form.is_signed)
        return false;
    if (form.scale == HC_SCALE_INTEGER && form.bits <= 8) {
        const bool is_shared = own->second == OWN_SECOND_TENSOR;
        *found =
            (hc_format){FAMILY_vsq, form.bits, format->group, {form.scale_bits, 0, is_shared}, format->n, format->m};
    } else if (form.second == HC_SECOND_NONE && (form.scale == HC_SCALE_F32 || form.scale == HC_SCALE_F16)) {
        const bool is_half = form.scale == HC_SCALE_F16;
        *found = (hc_format){FAMILY_int, form.bits, format->group, {1, is_half}, format->n, format->m};
    } else {
        return false;
    }
    return true;
}

/* True if a sentence rounds as the integers of the catalogue do. */
static bool rounds_alike(const hc_sentence *own) {
    const int32_t largest = (1 << (own->bits - 1)) - 1;
    return own->rule == OWN_ABSMAX && own->largest == largest && own->lowest == -largest &&
           own->target == (double)largest;
}

hc_format hc_cuda_stored_like(const hc_format *format, hc_cuda_kernel kernel) {
    hc_format found = *format;
    const hc_sentence *own = format->family == FAMILY_own ? hc_sentence_of(format) : NULL;
    const bool rounds = kernel == HC_CUDA_ENCODE || kernel == HC_CUDA_CHANCE;
    const bool is_full = kernel == HC_CUDA_INTEGERS && own && own->lowest < -own->largest; /* may have more limbs */
    if (own && (!rounds || rounds_alike(own)) && !is_full)
        find_integers(format, own, &found);
    return found;
}

hc_format hc_cuda_stored_like_in_words(const hc_format *format) {
    const hc_stored_form form = hc_form_of(format);
    hc_format found = {FAMILY_own, form.bits, format->group, {0}, format->n, format->m};
    if (format->family != FAMILY_own)
        return *format;
    if (find_integers(format, hc_sentence_of(format), &found) ||
        !(hc_form_has_table(&form) && format->group && !format->m))
        return found;
    if (form.scale == HC_SCALE_F32 && form.second == HC_SECOND_NONE)
        found.family = FAMILY_nf4;
    else if (form.scale == HC_SCALE_F16)
        found.family = FAMILY_ggml; /* q4_0 */
    else if (form.scale == HC_SCALE_E8M0)
        found = (hc_format){FAMILY_mx, form.bits, format->group, {HC_TYPE_FP4_E2M1}, 0, 0};
    else if (form.scale == HC_SCALE_E4M3)
        found.family = FAMILY_nvfp4;
    return found;
}

hc_cuda_entry hc_cuda_kernel_of(const hc_format *format, hc_cuda_kernel kernel) {
    int family = hc_cuda_stored_like(format, kernel).family;
    if (FAMILIES[family].by_record && !FAMILIES[family].kernel[kernel])
        family = FAMILY_own;
    return (hc_cuda_entry){FAMILIES[family].module, FAMILIES[family].kernel[kernel]};
}

hc_cuda_entry hc_cuda_words_kernel_of(const hc_format *format, int bits, hc_cuda_words_kernel kernel) {
    if (bits != 4 && bits != 8)
        return (hc_cuda_entry){NULL, NULL};
    const int family = hc_cuda_stored_like_in_words(format).family;
    return (hc_cuda_entry){FAMILIES[family].module, FAMILIES[family].words[bits == 8][kernel]};
}

/* Log numbers as a sentence: levels, of which one is -0, times a float32. */
static void load_log(const hc_format *format, hc_sentence *own) {
    const hc_stored_form form = hc_form_of(format);
    own->bits = format->bits;
    own->codes = HC_CODES_LOG;
    own->ranks = 1 << format->bits;
    own->is_signed = true;
    own->nan = -1;
    own->minus_zero = own->ranks - 1;
    own->scale = OWN_F32;
    own->sharing = format->group ? OWN_GROUP : OWN_ROW;
    for (int code = 0; code < own->ranks; code++)
        own->level[code] = form.level(format, (uint32_t)code);
}

_Static_assert(offsetof(hc_sentence, bound) <= HC_CUDA_NUMBERS * sizeof(double), "a step holds what decoding reads");

hc_format hc_cuda_add_record(const hc_format *format, const hc_geometry *geometry, hc_cuda_plan *plan) {
    hc_format there = *format;
    hc_sentence own = {0};
    if (!FAMILIES[format->family].by_record)
        return there;
    if (format->family == FAMILY_own)
        memcpy(&own, hc_sentence_of(format), sizeof own);
    else
        load_log(format, &own);
    const uint32_t groups = (uint32_t)geometry->groups;
    const void *at = hc_cuda_add_table(plan, &own, offsetof(hc_sentence, bound));
    memcpy(there.option + HC_CUDA_RECORD_AT, &at, sizeof at);
    memcpy(there.option + HC_CUDA_RECORD_GROUPS, &groups, sizeof groups);
    return there;
}
