/* Makes the buckets of a record; see search.h. */
#include "formats/own/search.h"

#include "formats/own/record.h"

enum { MOST_BUCKETS = 1024, LEAST_SHIFT = 13, MOST_SHIFT = 23 };
static const float MARGIN = 2 * OWN_DOUBT;

/* The magnitudes at which codes of a sign change, ascending, without tiny and infinite ones. */
typedef struct {
    int n;
    bool has_tiny, is_wide; /* a magnitude is below OWN_TINY; no buckets separate these bounds */
    float at[HC_OWN_LEVELS + 1];
} own_bounds;

static float times(double sign, float magnitude) { return sign < 0 ? -magnitude : magnitude; }

static uint32_t code_at(const hc_sentence *own, double sign, float magnitude) {
    return own_encode_element(own, (double)times(sign, magnitude)) & 0xff;
}

static void add_bound(const hc_sentence *own, double sign, double magnitude, own_bounds *bounds) {
    if (!(magnitude >= 0) || magnitude > DBL_MAX)
        return;
    if (magnitude < (double)OWN_TINY) {
        bounds->has_tiny = true;
        bounds->is_wide = bounds->is_wide || magnitude > 0x1p-1000;
        return;
    }
    if (magnitude > (double)(1 / OWN_TINY)) {
        bounds->is_wide = true;
        return;
    }
    const float near = (float)magnitude, below = near * (1 - MARGIN), above = near * (1 + MARGIN);
    const uint32_t low = code_at(own, sign, below);
    if (low == code_at(own, sign, above))
        return;
    float last = below; /* the last float32 that still has the lower code */
    for (int ulp = -2; ulp <= 2; ulp++) {
        const float here = hc_f32_from_bits(hc_f32_bits(near) + (uint32_t)ulp);
        last = code_at(own, sign, here) == low ? here : last;
    }
    if (bounds->n > 0 && bounds->at[bounds->n - 1] == last)
        return;
    bounds->is_wide = bounds->is_wide || (bounds->n > 0 && last * (1 - 4 * MARGIN) <= bounds->at[bounds->n - 1]);
    bounds->at[bounds->n++] = last;
}

static own_bounds bounds_of(const hc_sentence *own, double sign) {
    own_bounds bounds = {0};
    const int n = own->ranks - 1;
    for (int i = 0; i < n && sign > 0; i++)
        add_bound(own, sign, own->bound[i], &bounds);
    for (int i = n - 1; i >= 0 && sign < 0; i--)
        add_bound(own, sign, -own->bound[i], &bounds);
    if (own->nan >= 0 && sign < 0)
        add_bound(own, sign, -own->least, &bounds);
    bounds.is_wide = bounds.is_wide || (own->nan >= 0 && own->least > 0);
    return bounds;
}

static int32_t key(float magnitude, int shift) { return (int32_t)(hc_f32_bits(magnitude) >> shift); }

/* True if each bucket has at most one bound that is in it or as near as MARGIN. */
static bool separates(const own_bounds *bounds, int shift) {
    for (int i = 1; i < bounds->n; i++)
        if (key(bounds->at[i - 1] * (1 + MARGIN), shift) >= key(bounds->at[i] * (1 - MARGIN), shift))
            return false;
    return true;
}

own_search hc_own_search_size(const hc_sentence *own) {
    own_search search = {0};
    if (own->ranks == 0)
        return search;
    const own_bounds above = bounds_of(own, 1), below = bounds_of(own, -1);
    if (above.is_wide || below.is_wide)
        return search;
    float least = 1, most = 1;
    for (int sign = 0; sign < 2; sign++) {
        const own_bounds *bounds = sign ? &below : &above;
        for (int i = 0; i < bounds->n; i++) {
            least = bounds->at[i] < least ? bounds->at[i] : least;
            most = bounds->at[i] > most ? bounds->at[i] : most;
        }
    }
    for (int shift = MOST_SHIFT; shift >= LEAST_SHIFT; shift--) {
        if (!separates(&above, shift) || !separates(&below, shift))
            continue;
        const int32_t base = key(least * (1 - MARGIN), shift) - 1;
        const int32_t n = key(most * (1 + MARGIN), shift) - base + 2;
        if (n > MOST_BUCKETS)
            break;
        search = (own_search){.n = n, .shift = shift, .base = base};
        search.tiny = above.has_tiny || below.has_tiny ? OWN_TINY : 0;
        search.bytes = 2 * n * (int64_t)(sizeof *search.bound + sizeof *search.codes);
        break;
    }
    return search;
}

void hc_own_search_fill(const hc_sentence *own, own_search *search, void *memory) {
    const int32_t n = search->n;
    search->bound = memory;
    search->codes = (uint32_t *)(search->bound + 2 * n);
    for (int sign = 1; sign >= -1; sign -= 2) {
        const own_bounds bounds = bounds_of(own, sign);
        float *bound = search->bound + (sign < 0 ? n : 0);
        uint32_t *codes = search->codes + (sign < 0 ? n : 0);
        for (int32_t i = 0; i < n; i++) {
            const uint32_t edge = (uint32_t)(search->base + i) << search->shift;
            const uint32_t code = code_at(own, sign, hc_f32_from_bits(edge + ((uint32_t)1 << search->shift) / 2));
            bound[i] = FLT_MAX;
            codes[i] = code | code << 8;
        }
        const float first = hc_f32_from_bits((uint32_t)search->base << search->shift);
        const uint32_t zero = code_at(own, sign, 0), small = code_at(own, sign, first);
        codes[0] = zero | small << 8;
        bound[0] = zero == small ? FLT_MAX : 0;
        for (int j = 0; j < bounds.n; j++) {
            const float at = bounds.at[j];
            const uint32_t low = code_at(own, sign, at * (1 - MARGIN)), high = code_at(own, sign, at * (1 + MARGIN));
            const int32_t last = key(at * (1 + MARGIN), search->shift) - search->base;
            for (int32_t i = key(at * (1 - MARGIN), search->shift) - search->base; i <= last; i++) {
                bound[i] = at;
                codes[i] = low | high << 8;
            }
        }
    }
}
