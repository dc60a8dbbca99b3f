/* peak_read in plain C: kernels/peak/peak.h. */
#include "kernels/peak/peak.h"

uint64_t hc_peak_read_scalar(const void *bytes, int64_t size, int64_t ahead) {
    const uint64_t *word = bytes, *const end = word + size / 8;
    uint64_t sum = 0;
    for (; word < end; word += 8) {
        if (ahead)
            __builtin_prefetch((const char *)word + ahead);
        sum += (word[0] + word[1]) + (word[2] + word[3]) + ((word[4] + word[5]) + (word[6] + word[7]));
    }
    return sum;
}
