/* Fills errors, and multiplies sizes with a check for overflow. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

hc_status hc_fail(hc_error *error, hc_status code, const char *format, ...) {
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        error->status = code;
        error->argument = NULL;
        error->ndim = -1;
        error->value = 0;
    }
    return code;
}

hc_status hc_refuse(hc_error *error, const char *argument, const char *text) {
    hc_fail(error, HC_VALUE, "%s", text);
    if (error)
        error->argument = argument;
    return HC_VALUE;
}

hc_status hc_refuse_value(hc_error *error, const char *argument, int ndim, const int64_t *index, double value,
                          const char *text) {
    hc_refuse(error, argument, text);
    if (error) {
        error->ndim = ndim;
        for (int i = 0; i < ndim; i++)
            error->index[i] = index[i];
        error->value = value;
    }
    return HC_VALUE;
}

bool hc_mul_size(int64_t a, int64_t b, int64_t *product) { return !__builtin_mul_overflow(a, b, product); }
