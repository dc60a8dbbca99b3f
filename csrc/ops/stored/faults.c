/* Finds codes that a format never stores: the unused code, and padding that is not 0. Compares eight codes at a time.
 *   d = codes ^ unused repeated;  some code of d is 0  <=>  (d - 1 repeated) & ~d & (top bit repeated) is not 0
 */
#include "base/threads.h"
#include "formats/bits.h"
#include "formats/bytes.h"
#include "hc.h"

#include <stdatomic.h>

enum { ROWS = 16, EIGHT = 8 };

typedef struct {
    const hc_code_rules *rules;
    _Atomic int found;
} find_job;

static inline __attribute__((always_inline)) bool holds_code_of(const uint8_t *row, int64_t n, int bits, int64_t code) {
    const uint64_t wanted = hc_repeat_code((uint64_t)code, bits), low = hc_repeat_code(1, bits);
    const uint64_t high = low << (bits - 1);
    uint64_t found = 0;
    int64_t i = 0;
    for (; (n - i) * bits >= 64; i += EIGHT, row += bits) { /* bits above the eight codes change none of them */
        uint64_t x;
        memcpy(&x, row, EIGHT);
        x ^= wanted;
        found |= (x - low) & ~x;
    }
    for (; i + EIGHT <= n; i += EIGHT, row += bits) {
        uint64_t x = 0;
        memcpy(&x, row, (size_t)bits);
        x ^= wanted;
        found |= (x - low) & ~x;
    }
    if (found & high)
        return true;
    for (int64_t k = 0; k < n - i; k++)
        if (hc_read_bits(row, k, bits) == (uint32_t)code)
            return true;
    return false;
}

static bool holds_code(const uint8_t *row, int64_t n, int bits, int64_t code) {
    switch (bits) {
    case 1:
        return holds_code_of(row, n, 1, code);
    case 2:
        return holds_code_of(row, n, 2, code);
    case 3:
        return holds_code_of(row, n, 3, code);
    case 4: { /* sixteen at a time */
        const int64_t pairs = n / 16;
        const uint64_t wanted = (uint64_t)code * UINT64_C(0x1111111111111111);
        uint64_t found = 0;
        for (int64_t i = 0; i < pairs; i++) {
            uint64_t x;
            memcpy(&x, row + i * EIGHT, EIGHT);
            x ^= wanted;
            found |= (x - UINT64_C(0x1111111111111111)) & ~x;
        }
        return found & UINT64_C(0x8888888888888888) || holds_code_of(row + pairs * EIGHT, n - pairs * 16, 4, code);
    }
    case 5:
        return holds_code_of(row, n, 5, code);
    case 6:
        return holds_code_of(row, n, 6, code);
    case 7:
        return holds_code_of(row, n, 7, code);
    case 8:
        return holds_code_of(row, n, 8, code);
    default:
        break;
    }
    for (int64_t i = 0; i < n; i++)
        if (hc_read_bits(row, i, bits) == (uint32_t)code)
            return true;
    return false;
}

static bool has_padding(const hc_code_rules *rules, int64_t row) {
    const uint8_t *codes = rules->codes + row * rules->row_bytes;
    for (int64_t run = 0; run < rules->runs; run++) {
        uint32_t zero = (uint32_t)rules->padding;
        if (rules->zero_points)
            zero =
                hc_read_bits(rules->zero_points + row * rules->zero_bytes, (run + 1) * rules->groups - 1, rules->bits);
        for (int64_t i = rules->length; i < rules->padded; i++)
            if (hc_read_bits(codes, run * rules->padded + i, rules->bits) != zero)
                return true;
    }
    return false;
}

static void find_task(void *context, int64_t task, int thread) {
    (void)thread;
    find_job *job = context;
    const hc_code_rules *rules = job->rules;
    for (int64_t row = task * ROWS; row < hc_min(rules->rows, (task + 1) * ROWS); row++)
        if (rules->unused >= 0 && holds_code(rules->codes + row * rules->row_bytes, rules->runs * rules->padded,
                                             rules->bits, rules->unused)) {
            atomic_store(&job->found, HC_CODES_UNUSED);
        } else if (rules->padding >= 0 && rules->length < rules->padded && has_padding(rules, row)) {
            int sound = HC_CODES_SOUND; /* an unused code comes first */
            atomic_compare_exchange_strong(&job->found, &sound, HC_CODES_PADDING);
        }
}

hc_code_fault hc_find_fault(const hc_run *run, const hc_code_rules *rules) {
    find_job job = {.rules = rules};
    atomic_init(&job.found, HC_CODES_SOUND);
    if (rules->runs * rules->padded > 0) /* there may be up to 2^63 - 1 rows of no codes */
        hc_parallel(run->n_threads, hc_ceil_div(rules->rows, ROWS), find_task, &job);
    return (hc_code_fault)atomic_load(&job.found);
}
