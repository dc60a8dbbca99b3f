/* Copies matrices of packed codes: unpacking, packing, and the word layouts of other programs. Rows are converted
 * through bytes in the cache. If only words are moved, or 4-bit codes are transposed, the codes stay packed: eight
 * words of eight codes are transposed as the rows of an 8 x 8 matrix.
 */
#include "base/threads.h"
#include "formats/bytes.h"
#include "hc.h"

enum { ROWS = 16, CHUNK = 512, TILE = 64, WORD = 4, EIGHT = 8 };
enum { CHUNK_BYTES = CHUNK + EIGHT, WORDS = CHUNK * EIGHT / 32 };

static const uint8_t AWQ_ORDER[EIGHT] = {0, 2, 4, 6, 1, 3, 5, 7};

typedef struct {
    const hc_code_matrix *from, *to;
    int64_t rows, columns;
    uint8_t flip;
} move_job;

static int64_t bytes_of(int64_t codes, int bits) { return hc_ceil_div(codes * bits, 8); }

/* Exchanges the halves of each byte. */
static void swap_halves(uint8_t *bytes, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(bytes[i] << 4 | bytes[i] >> 4);
}

/* Copies n codes as they are stored, XOR `flip`; bits after the last become 0. n * bits is whole bytes, or this is the
 * end. */
static void flip_packed(uint8_t *row, int bits, int64_t n, uint8_t flip) {
    const int64_t bytes = bytes_of(n, bits), words = flip ? bytes / EIGHT : 0;
    uint64_t pattern[EIGHT]; /* of 8 * bits bytes */
    for (int i = 0; i < EIGHT; i++) {
        const uint64_t eight = hc_repeat_code(flip, bits);
        memcpy((uint8_t *)pattern + i * bits, &eight, (size_t)bits);
    }
    for (int64_t i = 0; i < words; i += bits)
        for (int64_t j = 0; j < hc_min(bits, words - i); j++) {
            uint64_t x;
            memcpy(&x, row + (i + j) * EIGHT, EIGHT);
            x ^= pattern[j];
            memcpy(row + (i + j) * EIGHT, &x, EIGHT);
        }
    for (int64_t i = words * EIGHT; flip && i < bytes; i++)
        row[i] ^= ((const uint8_t *)pattern)[i % (EIGHT * bits)];
    if (n * bits % 8)
        row[bytes - 1] &= (uint8_t)hc_low_bits((int)(n * bits % 8));
}

/* Codes [first, first + n) of rows [row, row + count) if neither side is transposed. `buffer`: one row of each side. */
static void move_rows(const move_job *job, int64_t row, int64_t count, int64_t first, int64_t n) {
    const hc_code_matrix *from = job->from, *to = job->to;
    const int64_t in_byte = first * from->bits / 8, out_byte = first * to->bits / 8;
    const int64_t in_bytes = bytes_of(n, from->bits), out_bytes = bytes_of(n, to->bits);
    uint32_t in_words[ROWS][WORDS], out_words[ROWS][WORDS];
    uint8_t bytes[CHUNK];
    if (from->kind == HC_CODES_WORD_COLUMNS)
        for (int64_t w = 0; w < hc_ceil_div(in_bytes, WORD); w++)
            for (int64_t r = 0; r < count; r++)
                memcpy(&in_words[r][w], from->data + ((in_byte / WORD + w) * job->rows + row + r) * WORD, WORD);
    for (int64_t r = 0; r < count; r++) {
        const uint8_t *source = from->kind == HC_CODES_WORD_COLUMNS
                                    ? (const uint8_t *)in_words[r]
                                    : from->data + (row + r) * from->row_bytes + in_byte;
        uint8_t *target = to->kind == HC_CODES_WORD_COLUMNS ? (uint8_t *)out_words[r]
                                                            : to->data + (row + r) * to->row_bytes + out_byte;
        if (to->kind == HC_CODES_WORD_COLUMNS)
            out_words[r][hc_ceil_div(out_bytes, WORD) - 1] = 0;
        if (from->bits == to->bits) {
            memcpy(target, source, (size_t)out_bytes);
            if (from->kind == HC_CODES_HIGH_FIRST)
                swap_halves(target, out_bytes);
            flip_packed(target, to->bits, n, job->flip);
            if (to->kind == HC_CODES_HIGH_FIRST)
                swap_halves(target, out_bytes);
            continue;
        }
        const int64_t pairs = from->kind == HC_CODES_HIGH_FIRST ? n + n % 2 : n;
        hc_unpack_bytes(source, from->bits, pairs, bytes);
        if (from->kind == HC_CODES_HIGH_FIRST)
            for (int64_t i = 0; i < n; i += 2) {
                const uint8_t low = bytes[i];
                bytes[i] = bytes[i + 1];
                bytes[i + 1] = low;
            }
        for (int64_t i = 0; job->flip && i < n; i++)
            bytes[i] ^= job->flip;
        hc_pack_bytes(bytes, to->bits, n, target);
        if (to->kind == HC_CODES_HIGH_FIRST)
            swap_halves(target, out_bytes);
    }
    if (to->kind == HC_CODES_WORD_COLUMNS)
        for (int64_t w = 0; w < hc_ceil_div(out_bytes, WORD); w++)
            for (int64_t r = 0; r < count; r++)
                memcpy(to->data + ((out_byte / WORD + w) * job->rows + row + r) * WORD, &out_words[r][w], WORD);
}

static void rows_task(void *context, int64_t task, int thread) {
    (void)thread;
    const move_job *job = context;
    const int64_t row = task * ROWS, count = hc_min(ROWS, job->rows - row);
    for (int64_t first = 0; first < job->columns; first += CHUNK)
        move_rows(job, row, count, first, hc_min(CHUNK, job->columns - first));
    const int64_t used = bytes_of(job->columns, job->to->bits);
    for (int64_t r = row; job->to->kind != HC_CODES_WORD_COLUMNS && r < row + count; r++)
        memset(job->to->data + r * job->to->row_bytes + used, 0, (size_t)(job->to->row_bytes - used));
}

/* x[i] byte k becomes x[k] byte i. */
static inline void transpose_bytes(uint64_t x[EIGHT]) {
    static const uint64_t MASK[3] = {UINT64_C(0x00000000ffffffff), UINT64_C(0x0000ffff0000ffff),
                                     UINT64_C(0x00ff00ff00ff00ff)};
    for (int step = 0; step < 3; step++) {
        const int distance = 4 >> step, shift = 32 >> step;
        for (int i = 0; i < EIGHT; i++)
            if (!(i & distance)) {
                const uint64_t moved = (x[i] >> shift ^ x[i + distance]) & MASK[step];
                x[i + distance] ^= moved;
                x[i] ^= moved << shift;
            }
    }
}

/* A transposition: `n_in` rows of n_out codes become `n_out` rows of n_in codes. */
typedef struct {
    const hc_code_matrix *from, *to;
    int64_t n_in, n_out;
    uint8_t flip;
    const uint8_t *in_order, *out_order; /* of eight rows of memory, or NULL */
} turn_job;

static inline int64_t ordered(const uint8_t *order, int64_t row) {
    return order ? row / EIGHT * EIGHT + order[row % EIGHT] : row;
}

/* Transposes 64 rows from `out` on, of which `count` exist, in columns [first, first + n), through bytes. */
static void turn_tile(const turn_job *job, int64_t out, int64_t count, int64_t first, int64_t n) {
    uint64_t in[TILE][TILE / EIGHT], turned[TILE][TILE / EIGHT];
    memset(in, 0, sizeof in);
    for (int64_t i = 0; i < n; i++)
        hc_unpack_bytes(job->from->data + ordered(job->in_order, first + i) * job->from->row_bytes +
                            out * job->from->bits / 8,
                        job->from->bits, count, (uint8_t *)in[i]);
    for (int64_t i = 0; i < n; i += EIGHT)
        for (int64_t j = 0; j < count; j += EIGHT) {
            uint64_t x[EIGHT];
            for (int k = 0; k < EIGHT; k++)
                x[k] = in[i + k][j / EIGHT];
            transpose_bytes(x);
            for (int k = 0; k < EIGHT; k++)
                turned[j + k][i / EIGHT] = x[k] ^ job->flip * HC_EACH_BYTE;
        }
    for (int64_t j = 0; j < count; j++)
        hc_pack_bytes((const uint8_t *)turned[j], job->to->bits, n,
                      job->to->data + ordered(job->out_order, out + j) * job->to->row_bytes +
                          first * job->to->bits / 8);
}

/* Exchanges the high bits of a with the low bits of b. */
static inline void exchange(uint32_t *a, uint32_t *b, int shift, uint32_t mask) {
    const uint32_t moved = (*a >> shift ^ *b) & mask;
    *b ^= moved;
    *a ^= moved << shift;
}

/* The same for 4 bits on both sides and whole words. `n` and `count` are multiples of 8. */
static void turn_halves(const turn_job *job, int64_t out, int64_t count, int64_t first, int64_t n) {
    const int64_t words = count / EIGHT;
    const uint32_t flip = (uint32_t)hc_repeat_code(job->flip, 4);
    uint32_t turned[TILE][TILE / EIGHT];
    for (int64_t i = 0; i < n; i += EIGHT) {
        uint32_t x[EIGHT][TILE / EIGHT];
        for (int k = 0; k < EIGHT; k++)
            memcpy(x[k], job->from->data + ordered(job->in_order, first + i + k) * job->from->row_bytes + out / 2,
                   (size_t)(words * WORD));
        for (int64_t w = 0; w < words; w++) {
            for (int k = 0; k < 4; k++)
                exchange(&x[k][w], &x[k + 4][w], 16, 0x0000ffff);
            for (int k = 0; k < 4; k++)
                exchange(&x[k / 2 * 4 + k % 2][w], &x[k / 2 * 4 + k % 2 + 2][w], 8, 0x00ff00ff);
            for (int k = 0; k < 4; k++)
                exchange(&x[2 * k][w], &x[2 * k + 1][w], 4, 0x0f0f0f0f);
        }
        for (int64_t w = 0; w < words; w++)
            for (int k = 0; k < EIGHT; k++)
                turned[w * EIGHT + k][i / EIGHT] = x[k][w] ^ flip;
    }
    for (int64_t j = 0; j < count; j++)
        memcpy(job->to->data + ordered(job->out_order, out + j) * job->to->row_bytes + first / 2, turned[j],
               (size_t)(n / 2));
}

static void turn_task(void *context, int64_t task, int thread) {
    (void)thread;
    const turn_job *job = context;
    const int64_t out = task * TILE, count = hc_min(TILE, job->n_out - out);
    const bool halves = job->from->bits == 4 && job->to->bits == 4 && job->n_in % EIGHT == 0 && count % EIGHT == 0;
    for (int64_t first = 0; first < job->n_in; first += TILE) {
        const int64_t n = hc_min(TILE, job->n_in - first);
        if (halves)
            turn_halves(job, out, count, first, n);
        else
            turn_tile(job, out, count, first, n);
    }
    const int64_t used = bytes_of(job->n_in, job->to->bits);
    for (int64_t j = out; j < out + count; j++)
        memset(job->to->data + j * job->to->row_bytes + used, 0, (size_t)(job->to->row_bytes - used));
}

void hc_move_codes(const hc_run *run, int64_t rows, int64_t columns, uint8_t flip, const hc_code_matrix *from,
                   const hc_code_matrix *to) {
    const bool turns = from->kind >= HC_CODES_TURNED, turned = to->kind >= HC_CODES_TURNED;
    HC_ASSUME(!(turns || turned) || from->kind == HC_CODES_ROWS || to->kind == HC_CODES_ROWS);
    if (to->row_bytes == 0) /* there may be up to 2^63 - 1 rows of no bytes */
        return;
    if (!turns && !turned) {
        move_job job = {from, to, rows, columns, flip};
        hc_parallel(run->n_threads, hc_ceil_div(rows, ROWS), rows_task, &job);
        return;
    }
    turn_job job = {from, to, turns ? columns : rows, turns ? rows : columns, flip, NULL, NULL};
    if (from->kind == HC_CODES_TURNED_AWQ)
        job.out_order = AWQ_ORDER;
    if (to->kind == HC_CODES_TURNED_AWQ)
        job.in_order = AWQ_ORDER;
    hc_parallel(run->n_threads, hc_ceil_div(job.n_out, TILE), turn_task, &job);
}
