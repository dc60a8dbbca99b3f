/* Values that are hard for kernels, in guarded memory; a seed gives the same values on every machine. */
#ifndef HC_TEST_HOSTILE_H
#define HC_TEST_HOSTILE_H

#include <stdbool.h>
#include <stdint.h>

/* Restarts the random numbers. shifted: memory is at odd addresses; otherwise it ends at the end of a page. */
void hostile_begin(uint64_t seed, bool shifted);

uint64_t draw(void);
int64_t draw_below(int64_t n); /* n >= 1 */

/* n poisoned items of `size` bytes, aligned to `size`. */
void *items(int64_t n, int64_t size);
void *copy_of(const void *from, int64_t n, int64_t size);

/* The kinds of random floats.
 *   plain    all bits of the fraction, exponents -4 to 3      ties    products and sums halfway between two floats
 *   zeros    of both signs, few others                        tiny    subnormal, or with subnormal products
 *   huge     the largest, whose sums overflow                 special NaN and infinities among plain ones */
typedef enum { PLAIN, ZEROS, TIES, TINY, HUGE_ONES, SPECIAL, N_FLOAT_KINDS, N_FINITE_KINDS = SPECIAL } float_kind;
const char *float_kind_name(float_kind kind);
float draw_float(float_kind kind);
void draw_floats(float *x, int64_t n, float_kind kind);
float *floats(int64_t n, float_kind kind);

/* The kinds of random integers: all, the least and the greatest, the least alone, the greatest alone. */
typedef enum { ANY, ENDS, LEAST, MOST, N_INTEGER_KINDS } integer_kind;
const char *integer_kind_name(integer_kind kind);
int64_t draw_integer(int64_t least, int64_t most, integer_kind kind);

void *random_bytes(int64_t n); /* at any alignment */

/* Item i of `bits` bits (1 to 8), lower bits of a byte first; the higher bits of the result are 0. */
unsigned bits_at(const uint8_t *from, int64_t i, int bits);
void put_bits(uint8_t *to, int64_t i, int bits, unsigned value);

#endif
