/* Types that all folders share: sizes, status, assertions, and the resources of one call. A status has a code for the
 * program and a message for the reader. The message names the argument, its value and the expected value. It is written
 * once, by the check that fails.
 */
#ifndef HC_BASE_H
#define HC_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define HC_X86 1
#else
#define HC_X86 0
#endif
#if defined(__aarch64__)
#define HC_ARM 1
#else
#define HC_ARM 0
#endif

#define HC_MAX_DIMS 32
#define HC_CACHE_LINE 64

typedef enum {
    HC_OK = 0,
    HC_VALUE,       /* ValueError: shape or value */
    HC_TYPE,        /* TypeError: dtype */
    HC_MEMORY,      /* MemoryError */
    HC_UNSUPPORTED, /* NotImplementedError: no kernel or backend for it */
    HC_STOPPED,     /* the caller's watch stopped the call (base/watch.h); results are unspecified values */
} hc_status;

/* The reason of a failure. With an argument, `text` is the rest of the sentence ("has no scale ..."), and the caller,
 * who has another name for the argument, builds the message. Without an argument, `text` is the whole message. */
typedef struct {
    char text[256];
    hc_status status;
    const char *argument; /* "w", "x", "scores", "importance", "format", or NULL */
    int ndim;             /* of the index of the refused value; -1: no particular value */
    int64_t index[HC_MAX_DIMS];
    double value;
} hc_error;

/* Each fills the error and returns the code, so that a check reads `return hc_fail(error, HC_VALUE, ...)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
hc_status hc_fail(hc_error *error, hc_status code, const char *format, ...);
hc_status hc_refuse(hc_error *error, const char *argument, const char *text);
hc_status hc_refuse_value(hc_error *error, const char *argument, int ndim, const int64_t *index, double value,
                          const char *text);

/* Device of memory: HC_HOST, or the number of a device, which the routes of that device interpret
 * (ops/route/routes.def). */
enum { HC_HOST = 0 };

/* The resources of one call, read once from the context at its start and passed down. */
typedef struct {
    uint32_t isa;  /* bits of base/cpu.h: instruction sets that kernels may use */
    int n_threads; /* >= 1 */
    int path;      /* 1 + the number of the path that every product must use (hc_path_name); 0: the plan chooses */
    /* 1 + the number of the route that a call uses if that route does not refuse (hc_route_name); 0: the fastest */
    int route;
    int device;     /* device on which a call with routes computes */
    bool one_order; /* one order of sums for every batch size: a row's result does not depend on the other rows */
} hc_run;

/* HC_ASSUME: the caller's duty. HC_ASSERT: an invariant of the core. Both are checked in debug and sanitizer builds
 * only. */
#ifdef HC_DEBUG
#include <assert.h>
#define HC_ASSERT(claim) assert(claim)
#else
#define HC_ASSERT(claim) ((void)0)
#endif
#define HC_ASSUME(duty) HC_ASSERT(duty)

/* false if the product exceeds int64. */
bool hc_mul_size(int64_t a, int64_t b, int64_t *product);

static inline int64_t hc_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t hc_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t hc_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t hc_round_up(int64_t a, int64_t b) { return hc_ceil_div(a, b) * b; }

/* Cache-line aligned; NULL if there is no memory or bytes < 0. hc_free_aligned(NULL) is allowed. */
void *hc_alloc_aligned(int64_t bytes);
void hc_free_aligned(void *pointer);
/* memory + bytes, or NULL if memory is NULL: C does not define an offset from NULL, not even 0. */
static inline void *hc_offset(void *memory, int64_t bytes) { return memory ? (char *)memory + bytes : NULL; }

#endif
