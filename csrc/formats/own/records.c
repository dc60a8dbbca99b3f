/* The records of this process: each once, by number, never freed. Several threads may define formats. */
#include "formats/own/known.h"

#include <stdatomic.h>

static _Atomic(own_known *) records[HC_OWN_MOST];

const own_known *hc_own_known_find(int32_t number) {
    return number >= 0 && number < HC_OWN_MOST ? atomic_load_explicit(&records[number], memory_order_acquire) : NULL;
}

const hc_sentence *hc_sentence_find(int32_t number) {
    const own_known *known = hc_own_known_find(number);
    return known ? &known->sentence : NULL;
}

/* The record, and what kernels read of it; NULL: out of memory. */
static own_known *known_of(const hc_sentence *own) {
    const own_search search = hc_own_search_size(own);
    own_known *known = hc_alloc_aligned((int64_t)sizeof *known + search.bytes);
    if (!known)
        return NULL;
    memcpy(&known->sentence, own, sizeof *own);
    known->search = search;
    if (search.n > 0)
        hc_own_search_fill(own, &known->search, known + 1);
    known->is_single = own->ranks > 0;
    known->has_infinity = false;
    for (int i = 0; i < HC_OWN_LEVELS; i++) {
        const double level = own->ranks > 0 ? own->level[i] : 0;
        known->level[i] = (float)level;
        known->is_single = known->is_single && (isnan(level) || (double)known->level[i] == level);
        known->has_infinity = known->has_infinity || isinf(level);
        known->scale[i] = own->scale == OWN_FLOAT ? own_decode_float(&own->scale_type, (uint32_t)i) : 0;
        known->integer[i] = own->whole >= 0 && own->ranks > 0 ? (int8_t)ldexp(level, own->whole) : 0;
    }
    hc_planes_of(known->level, own->ranks > 0 ? own->bits : 0, &known->planes);
    return known;
}

/* True if all functions can run with a record. Whoever made it has checked what it means. */
static bool is_safe(const hc_sentence *own) {
    const bool is_wide = own->ranks == 0 && (own->codes == HC_CODES_INTEGER || own->codes == HC_CODES_FLOAT);
    const bool has_table = own->ranks > 0 && own->ranks <= HC_OWN_LEVELS && own->bits <= 8;
    const int most = own->scale == OWN_INTEGER ? 10 : 8;
    return own->bits >= 1 && own->bits <= 16 && (is_wide || has_table) && own->codes > HC_CODES_UNSTATED &&
           own->codes < HC_CODES_LEARNED && own->scale >= 0 && own->scale < OWN_N_SCALES && own->sharing >= 0 &&
           own->sharing < OWN_N_SHARINGS && own->block_rows >= 1 && own->second >= 0 && own->second < OWN_N_SECONDS &&
           own->rule >= 0 && own->rule < OWN_N_RULES && own->scale_bits >= 0 && own->scale_bits <= most &&
           own->target > 0 && own->places >= 0 && own->places <= 1024 && own->type.fraction_bits <= 10 &&
           own->scale_type.fraction_bits <= 10;
}

hc_status hc_sentence_define(const hc_sentence *own, int32_t *number, hc_error *error) {
    own_known *copy = NULL;
    if (!is_safe(own))
        return hc_fail(error, HC_VALUE, "define: a field of the record is out of range");
    for (int32_t i = 0; i < HC_OWN_MOST; i++) {
        own_known *found = atomic_load_explicit(&records[i], memory_order_acquire);
        if (!found) {
            if (!copy) {
                copy = known_of(own);
                if (!copy)
                    return hc_fail(error, HC_MEMORY, "define: out of memory");
            }
            if (atomic_compare_exchange_strong(&records[i], &found, copy)) {
                *number = i;
                return HC_OK;
            }
        }
        if (memcmp(&found->sentence, own, sizeof *own) == 0) { /* found: what another thread wrote meanwhile, too */
            hc_free_aligned(copy);
            *number = i;
            return HC_OK;
        }
    }
    hc_free_aligned(copy);
    return hc_fail(error, HC_MEMORY, "define: this process has %d formats of its own already", HC_OWN_MOST);
}
