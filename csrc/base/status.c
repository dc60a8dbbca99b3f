/* Status sentences, overflow-checked sizes, aligned memory. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

hc_status hc_fail(hc_error *error, hc_status code, const char *format, ...) {
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return code;
}

bool hc_mul_size(int64_t a, int64_t b, int64_t *product) { return !__builtin_mul_overflow(a, b, product); }

void *hc_alloc_aligned(int64_t bytes) {
    if (bytes < 0 || bytes > INT64_MAX - HC_CACHE_LINE)
        return NULL;
    return aligned_alloc(HC_CACHE_LINE, (size_t)hc_round_up(hc_max(bytes, 1), HC_CACHE_LINE));
}

void hc_free_aligned(void *pointer) { free(pointer); }
