/* The loops that measure peak throughput: their state after each number of steps must equal the scalar kernel's, and
 * they must count the operations of their registers. */
#include "kernels.h"

#include <inttypes.h>
#include <string.h>

#define D PRId64

enum { LINE = 64 }; /* the alignment of the state and of the data */

/* A chain is a register of 1, 2 or 4 times 16 bytes. An operation counts once per lane, or once per register for
 * peak_shuffle (once per byte in the scalar kernel). */
static void loop_case(hc_peak_loop_fn *definition, hc_peak_loop_fn *fn, int64_t steps, bool is_float, float_kind kind) {
    begin("%" D " steps, %s", steps, is_float ? float_kind_name(kind) : "any bytes");
    float *wanted = items(HC_PEAK_STATE_BYTES / LINE, LINE);
    for (int i = 0; i < HC_PEAK_STATE_BYTES / 4; i++) {
        const uint32_t bits = (uint32_t)draw();
        memcpy(wanted + i, &bits, 4);
        wanted[i] = is_float ? draw_float(kind) : wanted[i];
    }
    float *got = copy_of(wanted, HC_PEAK_STATE_BYTES / LINE, LINE);
    const int64_t of_chains = definition(steps, wanted), count = fn(steps, got);
    same("state", is_float ? F32 : I32, got, wanted, HC_PEAK_STATE_BYTES / 4);
    const bool is_count = definition == hc_peak_shuffle_scalar
                              ? count == (steps ? HC_PEAK_CHAINS * (fn == definition ? 16 : 1) : 0)
                              : count == of_chains || count == 2 * of_chains || count == 4 * of_chains;
    if (!is_count)
        fail("it counts %" D " operations a step, the scalar kernel %" D, count, of_chains);
    BENCH(definition(steps, wanted), fn(steps, got));
}

static void check_loop(hc_peak_loop_fn *definition, hc_peak_loop_fn *fn, bool is_float) {
    FOR_EACH(int64_t, steps, 0, 1, 2, 3, 7, 16, 101)
    for (int kind = 0; kind < N_FLOAT_KINDS; kind++)
        loop_case(definition, fn, *steps, is_float, (float_kind)kind);
    usual();
    loop_case(definition, fn, 1000, is_float, PLAIN);
}

void check_peak_fma(const hc_kernel *kernel) { check_loop(hc_peak_fma_scalar, kernel->fn.peak_fma, true); }
void check_peak_dot(const hc_kernel *kernel) { check_loop(hc_peak_dot_scalar, kernel->fn.peak_dot, false); }
void check_peak_shuffle(const hc_kernel *kernel) { check_loop(hc_peak_shuffle_scalar, kernel->fn.peak_shuffle, false); }

static uint64_t sum_of(const uint64_t *words, int64_t size) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < size / 8; i++)
        sum += words[i];
    return sum;
}

static void read_case(const hc_kernel *kernel, int64_t lines, int64_t ahead) {
    begin("%" D " bytes, %" D " ahead", lines * LINE, ahead);
    uint64_t *words = items(lines, LINE);
    for (int64_t i = 0; i < lines * LINE / 8; i++)
        words[i] = draw();
    const uint64_t wanted = sum_of(words, lines * LINE), got = kernel->fn.peak_read(words, lines * LINE, ahead);
    same("sum", U64, &got, &wanted, 1);
    BENCH(sum_of(words, lines * LINE), kernel->fn.peak_read(words, lines * LINE, ahead));
}

void check_peak_read(const hc_kernel *kernel) {
    for (int64_t lines = 0; lines < 70; lines += lines < 20 ? 1 : 7)
        for (int64_t ahead = 0; ahead <= 4096; ahead += 2048)
            read_case(kernel, lines, ahead);
    usual();
    read_case(kernel, 256, 0);
}
