/* Attention, by the equations of kernels/layers/layers.h: every step rounded by itself, products and their sums by fma.
 *
 *   score    lane l of 16 has acc = fma(q_i, k_i, acc) of i = l, l + 16, ...; lanes fold l with l + 8, + 4, + 2, + 1
 *   keys     64 at a time: the largest score so far, the sum of exponentials, the answer
 *
 * Many queries: a block has 64 of one head. Few: a kernel for all scores, and one for 32 columns of an answer, whose chains over keys
 * are what takes time. Keys and values lie on 16 bytes there. Else a block has one query.
 */
#include "cuda/layers/sums.h"

namespace {

enum { KEYS = HC_CUDA_ATTEND_KEYS, THREADS = 128 };

static inline HC_DEVICE int lower(int a, int b) { return a < b ? a : b; }
static inline HC_DEVICE int higher(int a, int b) { return a > b ? a : b; }
/* What a score becomes: scaled, and within the cap. */
static inline HC_DEVICE float final_score(const hc_cuda_attend &p, float dot) {
    dot *= p.scale;
    if (p.cap > 0) {
        const float e = exponential(2.0f * (dot / p.cap)) + 1.0f;
        dot = p.cap * (1.0f - 2.0f / e);
    }
    return dot;
}

/* The keys that a query sees. */
struct seen {
    int begin, end;
    HC_DEVICE seen(const hc_cuda_attend &p, int at) {
        const int own = (int)(p.m - p.n) + at + 1; /* keys before this query, itself among them */
        end = p.causal ? own : (int)p.m;
        begin = p.window > 0 ? higher(0, own - (int)p.window) : 0;
    }
};

/* The first row of a head. */
static inline HC_DEVICE const float *q_of(const hc_cuda_attend &p, int head) {
    return p.q + blockIdx.z * p.q_step[0] + head * p.q_step[1];
}
static inline HC_DEVICE float *out_of(const hc_cuda_attend &p, int head) {
    return p.out + blockIdx.z * p.out_step[0] + head * p.out_step[1];
}
static inline HC_DEVICE const float *kept_of(const hc_cuda_attend &p, const float *from, const int64_t (&step)[3],
                                             int head) {
    return from + blockIdx.z * step[0] + head / (int)(p.heads / p.kv_heads) * step[1];
}

/* Many queries. Shared memory: queries, then keys or values, rows of a multiple of 16 floats and a gap of 4; scores by key, which
 * become exponentials, below 0 where a query does not see a key; of each query, the factor of a tile and the sum; of each
 * thread, the largest score. A thread has scores of 4 queries and 4 keys,
 * and then 4 queries of 8 columns of the answer. */
struct tile {
    enum { QUERIES = HC_CUDA_ATTEND_QUERIES, LD_SCORES = QUERIES + 4, MOST = HC_CUDA_ATTEND_WIDTH / 64 };
    const hc_cuda_attend &p;
    const int first, thread, width, ld;
    float *const scores, *const factors, *const sums, *const largest, *const q, *const kv;

    HC_DEVICE tile(const hc_cuda_attend &given)
        : p(given), first((int)(gridDim.x - 1 - blockIdx.x) * QUERIES), thread((int)threadIdx.x),
          width(((int)p.width + 15) / 16 * 16), ld(width + 4), scores((float *)hc_shared()),
          factors(scores + KEYS * LD_SCORES), sums(factors + QUERIES), largest(sums + QUERIES),
          q(largest + 4 * QUERIES), kv(q + QUERIES * ld) {}
    HC_DEVICE void copy_keys(int key) const {
        const float *k = kept_of(p, p.k, p.k_step, (int)blockIdx.y);
        copy_by_lanes(kv, k + key * p.k_step[2], p.k_step[2], (int)p.m - key);
    }

    /* 64 rows, zeros beyond the last and beyond the width */
    HC_DEVICE void copy(float *to, const float *from, int64_t step, int rows) const {
        const int in_row = thread % 4, row = thread / 4;
        HC_SHORT_LOOP
        for (int i = in_row * 4; i < width; i += 16) {
            const bool is_valid = row < rows && i < (int)p.width;
            hc_copy_16_or_zeros(to + row * ld + i, is_valid ? from + row * step + i : from, is_valid);
        }
        hc_copy_commit();
    }
    /* The same, of 16 floats the lanes l, l + 4, l + 8 and l + 12 together. */
    HC_DEVICE void copy_by_lanes(float *to, const float *from, int64_t step, int rows) const {
        const int row = thread / 4;
        HC_SHORT_LOOP
        for (int c = thread % 4 * 16; c < width; c += 64) {
            alignas(16) float four[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                four[i][0] = four[i][1] = four[i][2] = four[i][3] = 0;
                if (row < rows && c + i * 4 < (int)p.width)
                    hc_load_16(four[i], from + row * step + c + i * 4);
            }
#pragma unroll
            for (int l = 0; l < 4; l++) {
                alignas(16) const float lanes[4] = {four[0][l], four[1][l], four[2][l], four[3][l]};
                hc_store_16(to + row * ld + c + l * 4, lanes);
            }
        }
    }
    HC_DEVICE void find_scores() const {
        enum { AT_ONCE = 2 };
        const int lane = thread % HC_WARP, warp = thread / HC_WARP;
        const int own_q = warp / 2 * 16 + lane / 8, own_k = warp % 2 * 32 + lane % 8;
#pragma unroll 1
        for (int first = 0; first < 4; first += AT_ONCE) {
            const float *q_own = q + own_q * ld, *k_own = kv + (own_k + first * 8) * ld;
            float two[4][AT_ONCE] = {}, dots[4][AT_ONCE] = {}; /* of lanes 0 and 2, then of 1 and 3 */
            HC_SHORT_LOOP
            for (int turn = 0; turn < 4; turn++) {
                const int l = turn % 2 * 2 + turn / 2;
                float acc[4][AT_ONCE][4] = {};
#pragma unroll 1
                for (int c = 0; c < width; c += 16) {
                    alignas(16) float k[AT_ONCE][4], x[4];
#pragma unroll
                    for (int j = 0; j < AT_ONCE; j++)
                        memcpy(k[j], __builtin_assume_aligned(k_own + j * 8 * ld + c + l * 4, 16), 16);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        memcpy(x, __builtin_assume_aligned(q_own + i * 4 * ld + c + l * 4, 16), 16);
#pragma unroll
                        for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
                            for (int of_four = 0; of_four < 4; of_four++)
                                acc[i][j][of_four] = fmaf(x[of_four], k[j][of_four], acc[i][j][of_four]);
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < AT_ONCE; j++) {
                        const float (&a)[4] = acc[i][j], sum = (a[0] + a[2]) + (a[1] + a[3]);
                        two[i][j] = turn % 2 ? two[i][j] + sum : sum;
                        if (turn % 2)
                            dots[i][j] = turn == 1 ? two[i][j] : dots[i][j] + two[i][j];
                    }
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++)
                    scores[(own_k + (first + j) * 8) * LD_SCORES + own_q + i * 4] = dots[i][j];
        }
    }
    /* Four threads of a warp have a query: thread a has lanes a, a + 4, a + 8, a + 12 of its sums. */
    HC_DEVICE int last() const { return lower(first + QUERIES, (int)p.n) - 1; }
    HC_DEVICE void exponentials(int key) const {
        const int query = thread / 4, a = thread % 4;
        const seen keys(p, lower(first + query, last()));
        const int low = lower(higher(keys.begin - key, 0), KEYS);
        const int high = higher(lower(keys.end - key, KEYS), 0);
        const float before = largest[thread];
        float *own = scores + query, most = before, lanes[4] = {};
        HC_SHORT_LOOP
        for (int j = a; j < KEYS; j += 4) {
            const float score = final_score(p, own[j * LD_SCORES]);
            own[j * LD_SCORES] = score;
            if (j >= low && j < high)
                most = larger(most, score);
        }
        most = larger_of_lanes(most, 2);
        HC_SHORT_LOOP
        for (int j = a; j < KEYS; j += SUMS)
#pragma unroll
            for (int l = 0; l < 4; l++) {
                float &score = own[(j + l * 4) * LD_SCORES];
                const bool is_seen = j + l * 4 >= low && j + l * 4 < high;
                const float e = is_seen ? exponential(score - most) : 0;
                lanes[l] += e;
                score = is_seen ? e : -1.0f;
            }
        float part = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
        part = hc_shuffle_add(part, 2);
        part = hc_shuffle_add(part, 1);
        largest[thread] = most;
        if (a > 0)
            return;
        const float factor = low < high ? exponential(before - most) : 1.0f; /* a query may see no key of a tile */
        factors[query] = factor;
        if (low < high)
            sums[query] = sums[query] * factor + part;
    }
    template <bool is_whole> HC_DEVICE void add(float (&answer)[4][MOST][4]) const {
        const int own_q = thread / 16 * 4, own = thread % 16 * 4;
#pragma unroll 2
        for (int j = 0; j < KEYS; j++) {
            alignas(16) float e[4], v[MOST][4];
            memcpy(e, __builtin_assume_aligned(scores + j * LD_SCORES + own_q, 16), 16);
#pragma unroll
            for (int c = 0; c < MOST; c++)
                if (c * 64 + own < width)
                    memcpy(v[c], __builtin_assume_aligned(kv + j * ld + c * 64 + own, 16), 16);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (is_whole || !(e[i] < 0))
#pragma unroll
                    for (int c = 0; c < MOST; c++)
                        if (c * 64 + own < width)
#pragma unroll
                            for (int l = 0; l < 4; l++)
                                answer[i][c][l] = fmaf(e[i], v[c][l], answer[i][c][l]);
        }
    }
    HC_DEVICE void run() {
        const int own_q = thread / 16 * 4, own = thread % 16 * 4;
        alignas(16) float answer[4][MOST][4] = {};
        copy_by_lanes(q, q_of(p, (int)blockIdx.y) + first * p.q_step[2], p.q_step[2], (int)p.n - first);
        const int begin = seen(p, first).begin / KEYS * KEYS;
        largest[thread] = -INFINITY;
        if (thread < QUERIES)
            sums[thread] = 0;
        for (int key = begin; key < seen(p, last()).end; key += KEYS) {
            copy_keys(key);
            hc_barrier();
            find_scores();
            hc_barrier();
            copy(kv, kept_of(p, p.v, p.v_step, (int)blockIdx.y) + key * p.v_step[2], p.v_step[2], (int)p.m - key);
            exponentials(key);
            hc_copy_wait<0>();
            hc_barrier();
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < MOST; c++)
#pragma unroll
                    for (int l = 0; l < 4; l++)
                        answer[i][c][l] *= factors[own_q + i];
            if (key >= seen(p, last()).begin && key + KEYS <= seen(p, first).end)
                add<true>(answer);
            else
                add<false>(answer);
            hc_barrier();
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < MOST; c++)
                if (c * 64 + own < width)
                    hc_store_16(kv + (own_q + i) * ld + c * 64 + own, answer[i][c]);
        hc_barrier();
        const int row = thread / 4;
        float *to = out_of(p, (int)blockIdx.y) + (first + row) * p.out_step[2];
        HC_SHORT_LOOP
        for (int i = thread % 4; i < (int)p.width && first + row <= last(); i += 4)
            to[i] = kv[row * ld + i] / sums[row];
    }
};

} // namespace

HC_KERNEL(hc_attend_tiles, hc_cuda_attend, 256, 2) { tile(p).run(); }

/* All scores of 64 keys and a query of a head, and the largest of them. */
HC_KERNEL(hc_attend_scores, hc_cuda_attend, 128) {
    enum { AT_ONCE = KEYS * SUMS / THREADS, TEAMS = THREADS / SUMS };
    float *shared = (float *)hc_shared();
    const int lane = (int)threadIdx.x % SUMS, team = (int)threadIdx.x / SUMS;
    const int number = (int)blockIdx.y / (int)p.n, at = (int)blockIdx.y - number * (int)p.n;
    const int key = (int)blockIdx.x * KEYS + team, width = (int)p.width;
    const seen keys(p, at);
    const int64_t of_query = blockIdx.z * (int64_t)gridDim.y + blockIdx.y;
    const float *k_head = kept_of(p, p.k, p.k_step, number), *q = q_of(p, number) + at * p.q_step[2];
    const float *k[AT_ONCE];
    float dots[AT_ONCE] = {}, dot = 0;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++)
        k[j] = k_head + lower(key + j * TEAMS, (int)p.m - 1) * p.k_step[2];
#pragma unroll 2
    for (int i = lane; i < width; i += SUMS) {
        const float x = q[i];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            dots[j] = fmaf(x, k[j][i], dots[j]);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) { /* each of the first lanes keeps one */
        const float sum = fold(dots[j]);
        dot = lane == j ? sum : dot;
    }
    const int own = key + lane * TEAMS;
    const bool is_seen = lane < AT_ONCE && own >= keys.begin && own < keys.end;
    const float score = final_score(p, dot);
    if (is_seen)
        p.scores[of_query * p.m + own] = score;
    const float most = larger_of_lanes(is_seen ? larger(-INFINITY, score) : -INFINITY, 16);
    if (threadIdx.x % HC_WARP == 0)
        shared[threadIdx.x / HC_WARP] = most;
    hc_barrier();
    if (threadIdx.x == 0)
        p.largest[of_query * gridDim.x + blockIdx.x] =
            larger(larger(shared[0], shared[1]), larger(shared[2], shared[3]));
}

/* 32 columns of an answer: the first warp has the chains, the second the exponentials of the next 64 keys. Shared memory: stages of
 * values; exponentials, factor and sum of two tiles. */
HC_KERNEL(hc_attend_columns, hc_cuda_attend, 128) {
    enum {
        COLUMNS = HC_CUDA_ATTEND_COLUMNS,
        STAGES = HC_CUDA_ATTEND_STAGES,
        LD = HC_CUDA_ATTEND_LD,
        OF_LANE = KEYS / SUMS
    };
    float *values = (float *)hc_shared(), *exponentials = values + STAGES * KEYS * COLUMNS;
    const int thread = (int)threadIdx.x, lane = hc_lane(), warp = hc_warp(), column = (int)blockIdx.x * COLUMNS;
    const int number = (int)blockIdx.y / (int)p.n, at = (int)blockIdx.y - number * (int)p.n;
    const seen keys(p, at);
    const int64_t of_query = blockIdx.z * (int64_t)gridDim.y + blockIdx.y;
    const float *v_head = kept_of(p, p.v, p.v_step, number), *scores = p.scores + of_query * p.m;
    const float *largest_of = p.largest + of_query * (((int)p.m + KEYS - 1) / KEYS);
    const int begin = keys.begin / KEYS * KEYS;
    const auto copy = [&](int key, int stage) {
        for (int i = thread; key < keys.end && i < KEYS * COLUMNS / 4; i += THREADS) {
            const int row = i / (COLUMNS / 4), from = column + i % (COLUMNS / 4) * 4;
            const bool is_valid = key + row < (int)p.m && from < (int)p.width;
            hc_copy_16_or_zeros(values + stage * KEYS * COLUMNS + i * 4,
                                is_valid ? v_head + (key + row) * p.v_step[2] + from : v_head, is_valid);
        }
        hc_copy_commit();
    };
    float next[OF_LANE], largest = -INFINITY, next_largest = -INFINITY; /* of the second warp: of the tile to come */
    const auto load = [&](int key) {
        if (key < keys.end)
            next_largest = largest_of[key / KEYS];
#pragma unroll
        for (int i = 0; i < OF_LANE; i++) {
            const int own = key + lane % SUMS + i * SUMS;
            next[i] = own >= keys.begin && own < keys.end ? scores[own] : -INFINITY;
        }
    };
    /* Exponentials of the tile that was loaded; both halves of the warp have the same. */
    const auto turn = [&](int key) {
        float *to = exponentials + key / KEYS % 2 * LD, part = 0;
        const float now = larger(largest, next_largest);
#pragma unroll
        for (int i = 0; i < OF_LANE; i++) {
            const int own = key + lane % SUMS + i * SUMS;
            const float e = own >= keys.begin && own < keys.end ? exponential(next[i] - now) : 0;
            part += e;
            if (lane < SUMS)
                to[lane + i * SUMS] = e;
        }
        part = fold(part);
        if (lane == 0) {
            to[KEYS] = exponential(largest - now);
            to[KEYS + 1] = part;
        }
        largest = now;
    };
    HC_SHORT_LOOP
    for (int i = 0; i < STAGES - 1; i++)
        copy(begin + i * KEYS, i);
    if (warp == 1)
        load(begin);
    float sum = 0, answer = 0;
    int stage = 0;
    for (int key = begin - KEYS; key < keys.end; key += KEYS) { /* the first turn has exponentials alone */
        if (key >= begin) {
            hc_copy_wait<STAGES - 2>();
            hc_barrier();
            copy(key + (STAGES - 1) * KEYS, stage == 0 ? STAGES - 1 : stage - 1);
        }
        if (warp == 1 && key + KEYS < keys.end) {
            turn(key + KEYS);
            load(key + 2 * KEYS);
        }
        if (warp == 0 && key >= begin) {
            const float *e = exponentials + key / KEYS % 2 * LD, *v = values + stage * KEYS * COLUMNS + lane;
            sum = sum * e[KEYS] + e[KEYS + 1];
            answer *= e[KEYS];
            const int low = higher(keys.begin - key, 0), high = lower(keys.end - key, KEYS);
            if (low == 0 && high == KEYS) {
#pragma unroll 16
                for (int j = 0; j < KEYS; j++)
                    answer = fmaf(e[j], v[j * COLUMNS], answer);
            } else {
                HC_SHORT_LOOP
                for (int j = low; j < high; j++)
                    answer = fmaf(e[j], v[j * COLUMNS], answer);
            }
        }
        if (key >= begin)
            stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    hc_copy_wait<0>();
    if (warp == 0 && column + lane < (int)p.width)
        out_of(p, number)[at * p.out_step[2] + column + lane] = answer / sum;
}

/* Shared memory: scores of 64 keys, the maximum and the factor of a tile, the answer. */
HC_KERNEL(hc_attend, hc_cuda_attend, 128) {
    float *scores = (float *)hc_shared(), *shared = scores + KEYS, *answer = shared + 2;
    const int thread = (int)threadIdx.x, lane = thread % SUMS;
    const int64_t at = blockIdx.x, head = blockIdx.y, batch = blockIdx.z, kv_head = head / (p.heads / p.kv_heads);
    const float *q = p.q + batch * p.q_step[0] + head * p.q_step[1] + at * p.q_step[2];
    const float *k = p.k + batch * p.k_step[0] + kv_head * p.k_step[1];
    const float *v = p.v + batch * p.v_step[0] + kv_head * p.v_step[1];
    float *out = p.out + batch * p.out_step[0] + head * p.out_step[1] + at * p.out_step[2];
    /* keys before this query, itself among them */
    const int64_t own = p.m - p.n + at + 1, last = p.causal ? own : p.m;
    const int64_t begin = p.window > 0 ? hc_max(0, own - p.window) : 0;
    float sum = 0, largest = -INFINITY; /* of the first warp */
    HC_SHORT_LOOP
    for (int64_t i = thread; i < p.width; i += THREADS)
        answer[i] = 0;
    for (int64_t key = begin / KEYS * KEYS; key < last; key += KEYS) {
        const int low = (int)hc_max(begin - key, 0), high = (int)hc_min(last - key, KEYS);
        hc_barrier(); /* what the last tile read may go */
        HC_SHORT_LOOP
        for (int first = 0; first < KEYS; first += THREADS / SUMS) {
            const int j = first + thread / SUMS;
            const bool is_seen = j >= low && j < high;
            const float *row = k + (key + j) * p.k_step[2];
            float dot = 0;
            for (int64_t i = lane; i < p.width && is_seen; i += SUMS)
                dot = fmaf(q[i], row[i], dot);
            dot = final_score(p, fold(dot));
            if (lane == 0)
                scores[j] = is_seen ? dot : -INFINITY;
        }
        hc_barrier();
        if (thread < HC_WARP) {
            float most = largest;
            for (int j = thread; j < KEYS; j += HC_WARP)
                most = scores[j] > most ? scores[j] : most;
#pragma unroll
            for (int mask = 16; mask > 0; mask /= 2) {
                const float other = hc_f32_from_bits(hc_shuffle_xor(hc_f32_bits(most), mask));
                most = other > most ? other : most;
            }
            float part = 0;
            HC_SHORT_LOOP
            for (int j = lane; j < KEYS; j += SUMS) { /* both halves of the warp have the same */
                const float e = j >= low && j < high ? exponential(scores[j] - most) : 0;
                part += e;
            }
            const float factor = exponential(largest - most);
            sum = sum * factor + fold(part);
            largest = most;
            if (thread == 0)
                shared[0] = most, shared[1] = factor;
        }
        hc_barrier();
        const float most = shared[0], factor = shared[1];
        if (thread < KEYS)
            scores[thread] = thread >= low && thread < high ? exponential(scores[thread] - most) : 0;
        hc_barrier();
        HC_SHORT_LOOP
        for (int64_t i = thread; i < p.width; i += THREADS) {
            float acc = answer[i] * factor;
            for (int j = low; j < high; j++)
                acc = fmaf(scores[j], v[(key + j) * p.v_step[2] + i], acc);
            answer[i] = acc;
        }
    }
    hc_barrier();
    if (thread == 0)
        shared[0] = sum;
    hc_barrier();
    HC_SHORT_LOOP
    for (int64_t i = thread; i < p.width; i += THREADS)
        out[i] = answer[i] / shared[0];
}
