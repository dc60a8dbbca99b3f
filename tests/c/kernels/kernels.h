/* Every kernel alone, on hostile shapes and values, against the definition of its family: the scalar kernel, or the
 * equation of the family's header in plain C, which checks the scalar kernel too. A family's test is check_<family>:
 *
 *   for all cases {
 *       begin("k %d", k);                            the text of messages; frees the memory of the last case
 *       inputs, outputs                              hostile.h; both outputs start with the same bits
 *       definition(..., wanted); kernel(..., got)
 *       same("c", F32, got, wanted, n);              includes the padding, which must not change
 *   }
 *
 * All cases run twice: with memory that ends on a forbidden page, and with memory at odd addresses. The first error of
 * a kernel ends its check: another item, a write beside the outputs, a signal (a read or write outside of memory).
 */
#ifndef HC_TEST_KERNELS_H
#define HC_TEST_KERNELS_H

#include "formats/format.h"
#include "hostile.h"
#include "kernels/kernel.h"

/* Arguments: [--bench] [a prefix of family_isa ...]. Returns the exit status: 1 if something failed. */
int kernels(int n_arguments, char **arguments);

/* A family without a test does not link. */
#define HC_FAMILY(name, type) void check_##name(const hc_kernel *kernel);
#include "kernels/families.def"
#undef HC_FAMILY

/* Checks a kernel of a format, such as "encode" of "int", of a SIMD set; false if there is no such kernel. */
bool check_format_kernel(const char *kind, const char *format, const hc_format_simd *set);

__attribute__((format(printf, 1, 2))) void begin(const char *arguments, ...);

typedef enum { F32, F64, U8, I8, U16, I32, I64, U64 } item_type;
/* Ends the check at the first item whose bits differ. All NaNs count as equal, since ops/ canonicalizes them. */
void same(const char *what, item_type type, const void *got, const void *wanted, int64_t n);
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *message, ...);

/* The next case has a usual size: --bench times its definition and its kernel. */
void usual(void);
bool times_definition(void);
bool times_kernel(void);
#define BENCH(definition, call)                                                                                        \
    do {                                                                                                               \
        while (times_definition())                                                                                     \
            definition;                                                                                                \
        while (times_kernel())                                                                                         \
            call;                                                                                                      \
    } while (0)

/* Operands of products with few integer vectors (integers.c); draw_zero is a zero point. */
void *zeros(int64_t n, int64_t size);
int8_t *draw_lines(int bits, int n_lines, int64_t n, int64_t columns, integer_kind kind);
uint8_t *draw_integer_codes(int64_t bytes, int flip, integer_kind kind);
int32_t *make_start(int bits, int zero, int n_lines, int64_t x_bytes, const int8_t *x);
/* Rows of codes of 2 to 7 bits, unpacked to a byte each. */
const uint8_t *unpacked_rows(const uint8_t *stored, int64_t stride, int64_t row_bytes, int bits, int n_rows, int64_t n);
int draw_zero(bool is_signed);

/* Loops over the listed values. */
#define FOR_EACH(type, item, ...)                                                                                      \
    for (const type *item = (const type[]){__VA_ARGS__}, *const item##_end =                                           \
                                                             item +                                                    \
                                                             sizeof((const type[]){__VA_ARGS__}) / sizeof(type);       \
         item < item##_end; item++)

#endif
