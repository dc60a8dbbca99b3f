/* Let top_t be the t-th largest of a group's scores in a row, and v_i a member. If x replaces member i, the N largest
 * sum to
 *
 *   S - max(v_i, top_N) + max(x, rest_i)      rest_i = top_(N+1) if v_i >= top_N, otherwise top_N
 *
 * so an exchange costs two sums of max over the rows, for every N and M.
 */
#include "sparsity/permute.h"

#include "base/threads.h"

#include <stdatomic.h>
#include <string.h>

enum { BLOCK = 1 << 15 }; /* rows whose sum of 16-bit numbers fits int32 */

typedef struct {
    int64_t rows, ld;
    const int16_t *scores;
    int n, m;
    int64_t groups, players, round;
    int32_t *order;
    char *scratch;
    int64_t scratch_bytes;
    atomic_llong exchanges;
} hc_permute_job;

static int64_t sum_of_max(int64_t rows, const int16_t *a, const int16_t *b) {
    int64_t total = 0;
    for (int64_t first = 0; first < rows; first += BLOCK) {
        const int64_t last = hc_min(rows, first + BLOCK);
        int32_t sum = 0;
        for (int64_t r = first; r < last; r++)
            sum += a[r] > b[r] ? a[r] : b[r];
        total += sum;
    }
    return total;
}

/* One group: its members' scores, the sum without each member, and the sums of max(v_i, top_N). */
typedef struct {
    const int16_t *member[32];
    int16_t *top, *rest;
    int64_t kept[32];
} hc_permute_group;

static void load_group(const hc_permute_job *job, int64_t group, const int16_t *zeros, hc_permute_group *g) {
    const int n = job->n, m = job->m;
    const int64_t ld = job->ld;
    for (int i = 0; i < m; i++) {
        const int32_t column = job->order[group * m + i];
        g->member[i] = column < 0 ? zeros : job->scores + column * ld;
    }
    memset(g->top, 0, (size_t)((n + 1) * ld) * sizeof *g->top);
    for (int64_t first = 0; first < ld; first += 512) /* a strip stays in L1 */
        for (int i = 0; i < m; i++) {
            int16_t strip[512];
            const int64_t count = hc_min(512, ld - first);
            memcpy(strip, g->member[i] + first, (size_t)count * sizeof *strip);
            for (int t = 0; t <= n; t++) {
                int16_t *top = g->top + t * ld + first;
                for (int64_t r = 0; r < count; r++) {
                    const int16_t value = strip[r], old = top[r];
                    top[r] = value > old ? value : old;
                    strip[r] = value > old ? old : value;
                }
            }
        }
    const int16_t *last = g->top + (n - 1) * ld, *next = g->top + n * ld;
    for (int i = 0; i < m; i++) {
        int16_t *rest = g->rest + i * ld;
        for (int64_t r = 0; r < ld; r++)
            rest[r] = g->member[i][r] >= last[r] ? next[r] : last[r];
        g->kept[i] = sum_of_max(job->rows, g->member[i], last);
    }
}

/* The two groups of a pair in a round of the circle method: position 0 stays, the others rotate. */
static void pair_of(const hc_permute_job *job, int64_t pair, int64_t *a, int64_t *b) {
    const int64_t turning = job->players - 1;
    *a = pair == 0 ? job->players - 1 : (job->round + pair) % turning;
    *b = (job->round + turning - pair) % turning;
}

static void improve_pair(void *context, int64_t pair, int thread) {
    hc_permute_job *job = context;
    int64_t a, b;
    pair_of(job, pair, &a, &b);
    if (a >= job->groups || b >= job->groups)
        return;
    const int m = job->m;
    int16_t *memory = (int16_t *)(job->scratch + thread * job->scratch_bytes), *zeros = memory;
    hc_permute_group g[2];
    for (int side = 0; side < 2; side++) {
        g[side].top = memory + job->ld * (1 + side * (job->n + 1 + m));
        g[side].rest = g[side].top + job->ld * (job->n + 1);
    }
    memset(zeros, 0, (size_t)job->ld * sizeof *zeros);
    for (int tries = 0; tries < m * m; tries++) {
        load_group(job, a, zeros, &g[0]);
        load_group(job, b, zeros, &g[1]);
        int64_t best = 0;
        int best_i = -1, best_j = -1;
        for (int i = 0; i < m; i++)
            for (int j = 0; j < m; j++) {
                if (job->order[a * m + i] < 0 || job->order[b * m + j] < 0)
                    continue;
                const int64_t gain = sum_of_max(job->rows, g[1].member[j], g[0].rest + i * job->ld) - g[0].kept[i] +
                                     sum_of_max(job->rows, g[0].member[i], g[1].rest + j * job->ld) - g[1].kept[j];
                if (gain > best) {
                    best = gain;
                    best_i = i;
                    best_j = j;
                }
            }
        if (best_i < 0)
            return;
        const int32_t moved = job->order[a * m + best_i];
        job->order[a * m + best_i] = job->order[b * m + best_j];
        job->order[b * m + best_j] = moved;
        atomic_fetch_add(&job->exchanges, 1);
    }
}

int64_t hc_permute_sweep(int n_threads, int64_t rows, int64_t ld, const int16_t *scores, int n, int m, int64_t groups,
                         int32_t *order) {
    HC_ASSUME(n >= 1 && n < m && m <= 32 && ld >= rows && ld % 32 == 0);
    hc_permute_job job = {.rows = rows, .ld = ld, .scores = scores, .n = n, .m = m, .groups = groups, .order = order};
    if (groups < 2 || rows == 0)
        return 0;
    job.players = groups + groups % 2;
    atomic_init(&job.exchanges, 0);
    const int64_t pairs = job.players / 2;
    const int threads = (int)hc_min(hc_min(n_threads, HC_MAX_THREADS), pairs);
    int64_t bytes;
    if (!hc_mul_size(ld, (1 + 2 * (n + 1 + m)) * (int64_t)sizeof(int16_t), &bytes) ||
        !hc_mul_size(bytes, HC_CACHE_LINE * (int64_t)threads, &job.scratch_bytes)) /* fits when rounded up, too */
        return -1;
    job.scratch_bytes = hc_round_up(bytes, HC_CACHE_LINE);
    job.scratch = hc_alloc_aligned(job.scratch_bytes * threads);
    if (!job.scratch)
        return -1;
    for (job.round = 0; job.round < job.players - 1; job.round++)
        hc_parallel(threads, pairs, improve_pair, &job);
    hc_free_aligned(job.scratch);
    return atomic_load(&job.exchanges);
}
