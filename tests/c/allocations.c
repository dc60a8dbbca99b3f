#include "allocations.h"

#include "fingerprints.h"
#include "guard.h"
#include "operations.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The core's allocator: build.py renames it, because the hooks below have its names. */
void *system_alloc_aligned(int64_t bytes);
void system_free_aligned(void *pointer);

/* failing: the number of the allocation that fails (0: none). for_good: all later ones fail too. */
static atomic_llong asked, failing, held;
static atomic_bool for_good;

void *hc_alloc_aligned(int64_t bytes) {
    const long long number = atomic_fetch_add(&asked, 1) + 1, wanted = atomic_load(&failing);
    if (wanted && (for_good ? number >= wanted : number == wanted))
        return NULL;
    void *memory = system_alloc_aligned(bytes);
    atomic_fetch_add(&held, memory != NULL);
    return memory;
}

void hc_free_aligned(void *pointer) {
    atomic_fetch_sub(&held, pointer != NULL);
    system_free_aligned(pointer);
}

/* ALIKE: how many formats of a family are tried; the rest allocate at the same places. */
enum { ALIKE = 4, MAX_FAMILIES = 64 };

/* A format or an operation: one of the two pointers is NULL. */
typedef struct {
    const char *name;
    const hc_format *format;
    operation_fn *take;
} subject;

typedef struct {
    hc_status status;
    uint64_t hash;
    long long asked, kept; /* allocations, and how many of them were not freed */
    hc_error error;
} outcome;

static outcome attempt(const subject *of, long long number, bool all_after) {
    const hc_run run = {.isa = hc_cpu_isa(), .n_threads = 2};
    outcome found = {.hash = 0xcbf29ce484222325u};
    const long long before = atomic_load(&held);
    atomic_store(&asked, 0);
    atomic_store(&for_good, all_after);
    atomic_store(&failing, number);
    found.status = of->format ? fingerprint(&run, of->format, of->format->m ? 328 : 37, &found.hash, &found.error)
                              : of->take(&run, &found.hash, &found.error);
    atomic_store(&failing, 0);
    found.asked = atomic_load(&asked);
    found.kept = atomic_load(&held) - before;
    if (!guard_release()) {
        found.status = HC_VALUE;
        strcpy(found.error.text, "wrote outside its memory");
    }
    return found;
}

static bool fail(const subject *of, long long number, const char *what, const outcome *found) {
    printf("FAILED %s, allocation %lld: %s (status %d: %s)\n", of->name, number, what, (int)found->status,
           found->error.text);
    return false;
}

/* The next allocation to fail: each of the first 24, then ever fewer, since long runs repeat the same calls. */
static long long after(long long number) { return number < 24 ? number + 1 : number + number / 2; }

static bool fail_each(const subject *of, long long *tried) {
    /* The first pass also builds cached tables, so memory that it leaves allocated is no leak. */
    bool passed = true;
    outcome found, good = {0};
    for (long long number = 1;; number = after(number)) {
        found = attempt(of, number, true);
        if (found.status == HC_OK && found.asked < number)
            break;
        if (found.status != HC_MEMORY && found.status != HC_OK)
            return fail(of, number, "expected HC_MEMORY at first", &found);
    }
    good = attempt(of, 0, false);
    for (int all_after = 0; all_after < 2; all_after++)
        for (long long number = 1; number <= good.asked; number = after(number), ++*tried) {
            found = attempt(of, number, all_after);
            if (found.status == HC_OK ? found.hash != good.hash
                                      : found.status != HC_MEMORY || !strstr(found.error.text, "not enough memory"))
                passed = fail(of, number, "expected HC_MEMORY with a sentence, or the same bits", &found);
            if (found.kept != 0)
                passed = fail(of, number, "memory is not given back", &found);
            if (!all_after)
                continue;
            found = attempt(of, 0, false);
            if (found.status != HC_OK || found.hash != good.hash || found.kept != 0)
                return fail(of, number, "the next call is not what it was", &found);
        }
    return passed;
}

int allocations(void) {
    char line[256];
    bool passed = true;
    long long tried = 0;
    int n_subjects = 0, tried_of[MAX_FAMILIES] = {0};
    while (fgets(line, sizeof line, stdin)) {
        char *text;
        hc_format format;
        if (!read_format(line, &text, &format)) {
            printf("FAILED no format in the line: %s\n", line);
            return 1;
        }
        if (format.m == 0 && format.family < MAX_FAMILIES && ++tried_of[format.family] > ALIKE)
            continue;
        passed = fail_each(&(subject){.name = text, .format = &format}, &tried) && passed;
        n_subjects++;
    }
    for (const operation *one = OPERATIONS; one->name; one++, n_subjects++)
        passed = fail_each(&(subject){.name = one->name, .take = one->take}, &tried) && passed;
    passed = passed && tried > 0; /* otherwise the hooks were never called */
    printf("%lld allocations of %d formats and operations failed, %s\n", tried, n_subjects,
           passed ? "each with a sentence" : "not all of them well");
    return !passed;
}
