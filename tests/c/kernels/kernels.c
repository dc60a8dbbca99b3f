/* The loop over all kernels: signals, comparisons, messages, times. */
#include "kernels.h"
#include "records.h"

#include "base/platform/platform.h"
#include "guard.h"
#include "system.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef void check_fn(const hc_kernel *kernel);
static check_fn *const CHECKS[HC_N_FAMILIES] = {
#define HC_FAMILY(name, type) [HC_FAMILY_##name] = check_##name,
#include "kernels/families.def"
#undef HC_FAMILY
};

/* The case that runs now. */
static char name[64], arguments_of_case[256];
static bool is_shifted;
static uint64_t seed; /* of the case, counted from 1; 0: before the first */
static place_buf end_of_check;
static volatile sig_atomic_t is_checking;
static int64_t n_cases;
static int n_kernels, n_failed;

static void print_case(void) {
    printf("FAILED %s (%s, seed %" PRIu64 ", memory %s): ", name, arguments_of_case, seed,
           is_shifted ? "at odd addresses" : "up to the end of a page");
}

void fail(const char *message, ...) {
    va_list list;
    va_start(list, message);
    print_case();
    vprintf(message, list);
    printf("\n");
    va_end(list);
    return_to_place(end_of_check);
}

/* A read or write outside of memory fails the kernel that runs, and does not end the program. */
static void on_fault(int number, const void *address, bool is_access) {
    if (is_checking && number == SIGABRT) {
        print_case();
        printf("see the sanitizer's report\n");
        fflush(stdout);
    }
    if (!is_checking || number == SIGABRT)
        return;
    size_t bytes;
    const char *const block = guard_nearest(address, &bytes);
    if (!is_access)
        fail("signal %d", number);
    if (!block)
        fail("it reads or writes at %p, where no memory is", address);
    fail("it reads or writes byte %td of a block of %zu", (const char *)address - block, bytes);
}

static void finish_case(void) {
    if (!guard_release())
        fail("it writes beside its memory");
}

/* Sanitizers abort after their report, because a signal handler can still print the kernel's name. */
#define EXPORTED __attribute__((visibility("default")))
EXPORTED const char *__asan_default_options(void) { return "abort_on_error=1"; }
EXPORTED const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1"; }

/* A time is the least of ROUNDS rounds, each with enough calls to last ROUND_NS. */
enum { ROUNDS = 9, ROUND_NS = 1000000 };
static bool is_benchmark, next_is_usual, is_usual;
typedef struct {
    int64_t calls, left;
    int rounds;
    double start, best;
} timer;
static timer of_definition, of_kernel;

static double now(void) { return (double)hc_now_ns(); }

static bool goes_on(timer *t) {
    if (!is_usual || t->rounds == ROUNDS)
        return false;
    if (t->left-- > 0)
        return true;
    const double end = now();
    if (t->calls > 0 && end - t->start < ROUND_NS) {
        t->calls *= 2; /* too short: the round does not count */
    } else if (t->calls > 0) {
        const double each = (end - t->start) / (double)t->calls;
        t->best = t->rounds == 0 || each < t->best ? each : t->best;
        if (++t->rounds == ROUNDS)
            return false;
    } else {
        t->calls = 1;
    }
    t->left = t->calls - 1;
    t->start = now();
    return true;
}

void usual(void) { next_is_usual = true; }
bool times_definition(void) { return goes_on(&of_definition); }
bool times_kernel(void) { return goes_on(&of_kernel); }

void begin(const char *arguments, ...) {
    finish_case();
    va_list list;
    va_start(list, arguments);
    vsnprintf(arguments_of_case, sizeof arguments_of_case, arguments, list);
    va_end(list);
    hostile_begin(++seed, is_shifted);
    is_usual = is_benchmark && next_is_usual && !is_shifted;
    next_is_usual = false;
    n_cases++;
}

static const size_t SIZE[] = {[F32] = 4, [F64] = 8, [U8] = 1, [I8] = 1, [U16] = 2, [I32] = 4, [I64] = 8, [U64] = 8};

static double float_at(item_type type, const char *item) {
    float value;
    double wide;
    if (type == F64)
        return memcpy(&wide, item, 8), wide;
    return memcpy(&value, item, 4), (double)value;
}

static void print_item(char *text, size_t size, item_type type, const char *item) {
    uint64_t bits = 0;
    memcpy(&bits, item, SIZE[type]);
    if (type == F32 || type == F64)
        snprintf(text, size, "%.17g (0x%" PRIx64 ")", float_at(type, item), bits);
    else if (type == I8 || type == I32 || type == I64)
        snprintf(text, size, "%" PRId64, (int64_t)(bits << (64 - 8 * SIZE[type])) >> (64 - 8 * SIZE[type]));
    else
        snprintf(text, size, "0x%" PRIx64, bits);
}

void same(const char *what, item_type type, const void *got, const void *wanted, int64_t n) {
    const char *a = got, *b = wanted;
    for (int64_t i = 0; i < n; i++, a += SIZE[type], b += SIZE[type]) {
        if (memcmp(a, b, SIZE[type]) == 0)
            continue;
        if ((type == F32 || type == F64) && isnan(float_at(type, a)) && isnan(float_at(type, b)))
            continue;
        char a_text[64], b_text[64];
        print_item(a_text, sizeof a_text, type, a);
        print_item(b_text, sizeof b_text, type, b);
        fail("%s[%" PRId64 "] is %s, expected %s", what, i, a_text, b_text);
    }
}

static void print_time(void) {
    if (of_kernel.rounds < ROUNDS)
        printf("%-30s no case of usual size\n", name);
    else
        printf("%-30s %12.1f %12.1f %8.2f   %s\n", name, of_kernel.best, of_definition.best,
               of_definition.best / of_kernel.best, arguments_of_case);
}

static void run(const hc_kernel *kernel, const char *kind, const char *format, const hc_format_simd *set) {
    seed = 0;
    strcpy(arguments_of_case, "no case");
    of_definition = of_kernel = (timer){0};
    n_kernels++;
    n_failed++; /* until it has passed */
    if (remember_place(end_of_check) == 0) {
        is_checking = true;
        for (int shifted = 0; shifted < 2; shifted++) {
            is_shifted = shifted;
            if (kernel)
                CHECKS[kernel->family](kernel);
            else if (!check_format_kernel(kind, format, set))
                fail("there is no test of %s_<format>", kind);
            finish_case();
        }
        if (seed == 0)
            fail("its test has no case");
        n_failed--;
        if (is_benchmark)
            print_time();
    }
    is_checking = false;
    guard_release();
}

static bool is_wanted(int n_prefixes, char **prefixes) {
    for (int i = 0; i < n_prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return n_prefixes == 0;
}

static void run_kernels(int n_prefixes, char **prefixes) {
    int count;
    const hc_kernel *all = hc_kernels(&count);
    for (const hc_kernel *kernel = all; kernel < all + count; kernel++) {
        snprintf(name, sizeof name, "%s_%s", kernel->name, kernel->isa);
        if (!is_wanted(n_prefixes, prefixes))
            continue;
        if ((kernel->needs | kernel->also) & ~hc_cpu_isa())
            printf("%s: not on this machine\n", name);
        else
            run(kernel, NULL, NULL, NULL);
    }
    const char *of_format;
    const hc_format_simd *set;
    for (int number = 0; hc_format_kernel(number, &of_format, &set); number++) {
        char kind[32];
        const char *const format = strchr(of_format, '_') + 1;
        snprintf(kind, sizeof kind, "%.*s", (int)(format - 1 - of_format), of_format);
        snprintf(name, sizeof name, "%s_%s", of_format, set->isa);
        if (!is_wanted(n_prefixes, prefixes))
            continue;
        if (set->needs & ~hc_cpu_isa())
            printf("%s: not on this machine\n", name);
        else
            run(NULL, kind, format, set);
    }
}

int kernels(int n_arguments, char **arguments) {
    is_benchmark = n_arguments > 0 && strcmp(arguments[0], "--bench") == 0;
    if (!guard_works()) {
        printf("FAILED the guard: a byte outside the memory goes unseen\n");
        return 1;
    }
    handle_faults(on_fault);
    if (is_benchmark)
        printf("%-30s %12s %12s %8s\n", "kernel", "ns a call", "definition", "ratio");
    const int n_records = define_records();
    run_kernels(n_arguments - is_benchmark, arguments + is_benchmark);
    printf("%d kernels, %" PRId64 " cases, %d own formats, %d failed\n", n_kernels, n_cases, n_records, n_failed);
    return n_failed != 0 || n_kernels == 0;
}
