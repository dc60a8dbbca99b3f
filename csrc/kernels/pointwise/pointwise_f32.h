/* The body of operations of one value each, 4 registers at a time; kernels/pointwise/pointwise.h. Included after a
 * header of base/lanes. */
#include "kernels/kernel.h"

#include <stdbool.h>

#define INLINE static inline __attribute__((always_inline))

enum { REGISTERS = 4 };

typedef struct {
    lanes low, high, scale, shift;
} pointwise_constants;

INLINE lanes within(lanes a, const pointwise_constants *k) {
    return lanes_select(lanes_above(k->low, a), k->low, lanes_select(lanes_above(a, k->high), k->high, a));
}

INLINE lanes pointwise(hc_pointwise_operation operation, lanes a, lanes b, const pointwise_constants *k) {
    switch (operation) {
    case HC_POINTWISE_ADD:
        return lanes_add(a, b);
    case HC_POINTWISE_SUB:
        return lanes_sub(a, b);
    case HC_POINTWISE_MUL:
        return lanes_mul(a, b);
    case HC_POINTWISE_DIV:
        return lanes_div(a, b);
    case HC_POINTWISE_CLIP:
        return within(a, k);
    case HC_POINTWISE_HARD:
        return within(lanes_add(lanes_mul(a, k->scale), k->shift), k);
    default:
        return lanes_select(lanes_above(lanes_of(0), a), lanes_mul(a, k->scale), a);
    }
}

INLINE void pointwise_row(hc_pointwise_operation operation, int64_t n, const hc_pointwise_part *part, bool a_moves,
                          bool b_moves) {
    const pointwise_constants k = {lanes_of(part->low), lanes_of(part->high), lanes_of(part->scale),
                                   lanes_of(part->shift)};
    const lanes first = lanes_of(*part->a), second = part->b ? lanes_of(*part->b) : first;
    int64_t i = 0;
    for (; i + REGISTERS * LANES <= n; i += REGISTERS * LANES)
        for (int j = 0; j < REGISTERS; j++) {
            const int64_t at = i + j * LANES;
            const lanes a = a_moves ? lanes_load(part->a + at) : first;
            lanes_store(part->to + at, pointwise(operation, a, b_moves ? lanes_load(part->b + at) : second, &k));
        }
    for (int64_t some; i < n; i += some) {
        some = n - i < LANES ? n - i : LANES;
        const lanes a = a_moves ? lanes_load_some(part->a + i, some) : first;
        const lanes b = b_moves ? lanes_load_some(part->b + i, some) : second;
        lanes_store_some(part->to + i, pointwise(operation, a, b, &k), some);
    }
}

INLINE void pointwise_pair(hc_pointwise_operation operation, int64_t n, const hc_pointwise_part *part) {
    if (part->a_step && part->b_step)
        pointwise_row(operation, n, part, true, true);
    else if (part->a_step)
        pointwise_row(operation, n, part, true, false);
    else
        pointwise_row(operation, n, part, false, part->b_step != 0);
}

INLINE void pointwise_part(int64_t n, const hc_pointwise_part *part) {
    switch (part->operation) {
    case HC_POINTWISE_ADD:
        pointwise_pair(HC_POINTWISE_ADD, n, part);
        break;
    case HC_POINTWISE_SUB:
        pointwise_pair(HC_POINTWISE_SUB, n, part);
        break;
    case HC_POINTWISE_MUL:
        pointwise_pair(HC_POINTWISE_MUL, n, part);
        break;
    case HC_POINTWISE_DIV:
        pointwise_pair(HC_POINTWISE_DIV, n, part);
        break;
    case HC_POINTWISE_CLIP:
        pointwise_row(HC_POINTWISE_CLIP, n, part, part->a_step != 0, false);
        break;
    case HC_POINTWISE_HARD:
        pointwise_row(HC_POINTWISE_HARD, n, part, part->a_step != 0, false);
        break;
    default:
        pointwise_row(HC_POINTWISE_LEAKY, n, part, part->a_step != 0, false);
    }
}
