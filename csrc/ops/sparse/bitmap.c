/* NVDLA's storage of arrays with zeros: one bit per item, and the nonzero items one after the other (NVDLA's hardware
 * manual, "Sparse compression option"). An item is zero if all its bits are; items of 1, 2, 4 or 8 bytes. Bit i % 8 of
 * byte i / 8 is item i.
 *
 * Threads own blocks of BLOCK_WORDS words of bits; the start of a block's nonzero items follows from the bits. A
 * partial word of 64 items goes through a buffer.
 */
#include "hc.h"
#include "kernels/kernel.h"

#include "base/threads.h"

#include <string.h>

enum { WORD = 64, BLOCK_WORDS = 512 };

typedef struct {
    int bytes;
    int64_t count;
    const uint8_t *bitmap; /* a copy, since another thread may change the caller's between counting and moving */
    uint8_t *marks;        /* to be filled, or NULL */
    const char *from;
    char *to;
    int64_t *starts; /* (blocks): first kept item */
    hc_bitmap_mark_fn *mark;
    hc_bitmap_compress_fn *keep;
    hc_bitmap_expand_fn *place;
} hc_bitmap_job;

static int64_t n_blocks(int64_t count) { return hc_ceil_div(count, WORD * BLOCK_WORDS); }

/* The words of a block in the form of kernels, with zeros after the last item. Returns the number of whole words. */
static int64_t read_words(const hc_bitmap_job *job, int64_t block, uint64_t words[BLOCK_WORDS]) {
    const int64_t first = block * BLOCK_WORDS * WORD, items = hc_min(BLOCK_WORDS * WORD, job->count - first);
    words[items / WORD % BLOCK_WORDS] = 0;
    memcpy(words, job->bitmap + first / 8, (size_t)hc_ceil_div(items, 8));
    return items / WORD;
}

static int64_t ones(const uint64_t *words, int64_t count) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += __builtin_popcountll(words[i]);
    return sum;
}

static void mark_task(void *context, int64_t block, int thread) {
    (void)thread;
    const hc_bitmap_job *job = context;
    const int64_t first = block * BLOCK_WORDS * WORD, items = hc_min(BLOCK_WORDS * WORD, job->count - first);
    const int64_t whole = items / WORD, rest = items % WORD;
    uint64_t words[BLOCK_WORDS];
    const char *from = job->from + first * job->bytes;
    job->mark(job->bytes, whole, from, words);
    if (rest > 0) {
        char buffer[WORD * 8] = {0};
        memcpy(buffer, from + whole * WORD * job->bytes, (size_t)(rest * job->bytes));
        job->mark(job->bytes, 1, buffer, words + whole);
    }
    job->starts[block] = ones(words, hc_ceil_div(items, WORD));
    memcpy(job->marks + first / 8, words, (size_t)hc_ceil_div(items, 8));
}

static void count_task(void *context, int64_t block, int thread) {
    (void)thread;
    const hc_bitmap_job *job = context;
    uint64_t words[BLOCK_WORDS];
    const int64_t whole = read_words(job, block, words);
    const int64_t items = hc_min(BLOCK_WORDS * WORD, job->count - block * BLOCK_WORDS * WORD);
    job->starts[block] = ones(words, items % WORD ? whole + 1 : whole);
}

static void keep_task(void *context, int64_t block, int thread) {
    (void)thread;
    const hc_bitmap_job *job = context;
    const int64_t first = block * BLOCK_WORDS * WORD, rest = hc_min(BLOCK_WORDS * WORD, job->count - first) % WORD;
    uint64_t words[BLOCK_WORDS];
    const int64_t whole = read_words(job, block, words);
    const char *from = job->from + first * job->bytes;
    char *to = job->to + job->starts[block] * job->bytes;
    job->keep(job->bytes, whole, words, from, to);
    if (rest > 0) {
        char buffer[WORD * 8] = {0};
        memcpy(buffer, from + whole * WORD * job->bytes, (size_t)(rest * job->bytes));
        job->keep(job->bytes, 1, words + whole, buffer, to + ones(words, whole) * job->bytes);
    }
}

static void place_task(void *context, int64_t block, int thread) {
    (void)thread;
    const hc_bitmap_job *job = context;
    const int64_t first = block * BLOCK_WORDS * WORD, rest = hc_min(BLOCK_WORDS * WORD, job->count - first) % WORD;
    uint64_t words[BLOCK_WORDS];
    const int64_t whole = read_words(job, block, words);
    const char *from = job->from + job->starts[block] * job->bytes;
    char *to = job->to + first * job->bytes;
    job->place(job->bytes, whole, words, from, to);
    if (rest > 0) {
        char buffer[WORD * 8];
        job->place(job->bytes, 1, words + whole, from + ones(words, whole) * job->bytes, buffer);
        memcpy(to + whole * WORD * job->bytes, buffer, (size_t)(rest * job->bytes));
    }
}

static hc_status begin(const hc_run *run, hc_bitmap_job *job, hc_error *error) {
    job->mark = HC_PICK(bitmap_mark, run);
    job->keep = HC_PICK(bitmap_compress, run);
    job->place = HC_PICK(bitmap_expand, run);
    if (job->bytes != 1 && job->bytes != 2 && job->bytes != 4 && job->bytes != 8)
        return hc_fail(error, HC_TYPE, "bitmap: items of %d bytes, expected 1, 2, 4 or 8", job->bytes);
    job->starts = hc_alloc_aligned(n_blocks(job->count) * (int64_t)sizeof *job->starts);
    return job->starts ? HC_OK
                       : hc_fail(error, HC_MEMORY, "bitmap: not enough memory for %lld blocks",
                                 (long long)n_blocks(job->count));
}

/* Converts counts of blocks to their starts; returns the sum. */
static int64_t add_up(hc_bitmap_job *job) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n_blocks(job->count); i++) {
        const int64_t count = job->starts[i];
        job->starts[i] = sum;
        sum += count;
    }
    return sum;
}

hc_status hc_bitmap_mark(const hc_run *run, int bytes, int64_t count, const void *items, uint8_t *bitmap, int64_t *kept,
                         hc_error *error) {
    hc_bitmap_job job = {.bytes = bytes, .count = count, .from = items, .marks = bitmap};
    const hc_status status = begin(run, &job, error);
    if (status == HC_OK) {
        hc_parallel(run->n_threads, n_blocks(count), mark_task, &job);
        *kept = add_up(&job);
    }
    hc_free_aligned(job.starts);
    return status;
}

static hc_status move(const hc_run *run, hc_bitmap_job *job, int64_t kept, hc_task *task, hc_error *error) {
    const int64_t bytes = hc_ceil_div(job->count, 8);
    uint8_t *const own = hc_alloc_aligned(bytes);
    hc_status status =
        own ? begin(run, job, error)
            : hc_fail(error, HC_MEMORY, "bitmap: not enough memory for %lld bits", (long long)job->count);
    if (status == HC_OK) {
        if (bytes > 0)
            memcpy(own, job->bitmap, (size_t)bytes);
        job->bitmap = own;
        hc_parallel(run->n_threads, n_blocks(job->count), count_task, job);
        const int64_t found = add_up(job);
        if (found == kept)
            hc_parallel(run->n_threads, n_blocks(job->count), task, job);
        else
            status = hc_fail(error, HC_VALUE, "bitmap: %lld bits are set for %lld values", (long long)found,
                             (long long)kept);
    }
    hc_free_aligned(job->starts);
    hc_free_aligned(own);
    return status;
}

hc_status hc_bitmap_compress(const hc_run *run, int bytes, int64_t count, const void *items, const uint8_t *bitmap,
                             int64_t kept, void *values, hc_error *error) {
    hc_bitmap_job job = {.bytes = bytes, .count = count, .bitmap = bitmap, .from = items, .to = values};
    return move(run, &job, kept, keep_task, error);
}

hc_status hc_bitmap_expand(const hc_run *run, int bytes, int64_t count, const uint8_t *bitmap, int64_t kept,
                           const void *values, void *items, hc_error *error) {
    hc_bitmap_job job = {.bytes = bytes, .count = count, .bitmap = bitmap, .from = values, .to = items};
    return move(run, &job, kept, place_task, error);
}
