/* The table of paths.def, and the choice of a path; paths.h. */
#include "cuda/paths.h"

#include <string.h>

#define HC_CUDA_PATH(section, symbol, family, ...)                                                                     \
    const char *hc_cuda_##family##_refuses(const hc_cuda_product *p, const hc_cuda_path *path);                        \
    hc_cuda_work hc_cuda_##family##_work(const hc_cuda_product *p, const hc_cuda_path *path);                          \
    void hc_cuda_##family##_add(hc_cuda_product *p, const hc_cuda_path *path, hc_cuda_plan *plan);
#include "cuda/paths.def"
#undef HC_CUDA_PATH

typedef enum {
#define HC_CUDA_PATH(section, symbol, ...) HC_CUDA_PATH_##section##_##symbol,
#include "cuda/paths.def"
#undef HC_CUDA_PATH
    HC_CUDA_N_PATHS
} hc_cuda_path_number;

static const hc_cuda_path PATHS[HC_CUDA_N_PATHS] = {
#define HC_CUDA_PATH(of, symbol, family, text, does, ...)                                                              \
    {.section = HC_CUDA_##of,                                                                                          \
     .id = #of "_" #symbol,                                                                                            \
     .name = text,                                                                                                     \
     .what = does,                                                                                                     \
     .refuses = hc_cuda_##family##_refuses,                                                                            \
     .work = hc_cuda_##family##_work,                                                                                  \
     .add = hc_cuda_##family##_add,                                                                                    \
     __VA_ARGS__},
#include "cuda/paths.def"
#undef HC_CUDA_PATH
};

/* Nanoseconds of a call and of each count, of `least` to `most` rows of x. */
typedef struct {
    int64_t least, most;
    double call;
    hc_cuda_work of;
} hc_cuda_cost;
/* The last entry is for all architectures, where a path has no costs of its own. */
static const struct {
    int architecture;
    hc_cuda_cost of[HC_CUDA_N_PATHS];
} COSTS[] = {
#include "cuda/costs/costs.def"
};

enum { H100_MULTIPROCESSORS = 132 /* of a plan for no device */ };
static const double UNMEASURED = 1e15; /* ns, of a path without costs for so many rows */

static double nanoseconds(const hc_cuda_product *p, int number, const hc_cuda_work *work) {
    int i = 0;
    while (COSTS[i].architecture && (COSTS[i].architecture != p->architecture || !COSTS[i].of[number].call))
        i++;
    const hc_cuda_cost *cost = &COSTS[i].of[number];
    const double ns =
        cost->call + cost->of.rounds * work->rounds + cost->of.bytes * work->bytes + cost->of.codes * work->codes;
    return p->m >= cost->least && p->m <= cost->most ? ns : UNMEASURED + ns;
}

void hc_cuda_init_product(hc_cuda_product *p, const hc_cuda_plan *plan) {
    p->architecture = plan->architecture;
    p->at_once = plan->multiprocessors ? plan->multiprocessors : H100_MULTIPROCESSORS;
    p->is_kept = false;
    p->conv = NULL;
    p->made = (hc_cuda_made){.integers = NULL};
}

const char *hc_cuda_path_name(int number) {
    int n = 0;
    for (int i = 0; i < HC_CUDA_N_PATHS; i++) {
        bool is_new = true;
        for (int j = 0; j < i; j++)
            is_new = is_new && strcmp(PATHS[j].name, PATHS[i].name) != 0;
        if (is_new && n++ == number)
            return PATHS[i].name;
    }
    return NULL;
}

/* The path of that name; NULL, with a message, where it refuses or there is none. */
static const hc_cuda_path *find(const hc_cuda_product *p, const char *name, hc_error *error) {
    const char *call = p->conv ? "convolution" : "matmul";
    char known[400] = "";
    for (int i = 0; i < HC_CUDA_N_PATHS; i++) {
        if (PATHS[i].section != p->section)
            continue;
        const char *reason = PATHS[i].refuses(p, PATHS + i);
        if (strcmp(PATHS[i].name, name) == 0 && reason)
            return hc_fail(error, HC_VALUE, "path '%s' refuses this %s: %s", name, call, reason), NULL;
        if (strcmp(PATHS[i].name, name) == 0)
            return PATHS + i;
        if (!reason) {
            strncat(known, *known ? ", " : "", sizeof known - strlen(known) - 1);
            strncat(known, PATHS[i].name, sizeof known - strlen(known) - 1);
        }
    }
    return hc_fail(error, HC_VALUE, "path '%s' does not apply to this %s on a device; available paths: %s", name, call,
                   known),
           NULL;
}

hc_status hc_cuda_choose(const hc_cuda_product *p, const hc_cuda_plan *plan, const hc_cuda_path **path,
                         hc_error *error) {
    const char *forced = plan->path;
    hc_cuda_explanation *explanation = plan->explanation;
    *path = NULL;
    if (forced && !(*path = find(p, forced, error)))
        return HC_VALUE;
    if (forced && !explanation)
        return HC_OK;
    if (explanation)
        explanation->n = 0;
    const char *reason = NULL; /* of the last */
    double least = 0;
    int chosen = -1, n = 0;
    for (int i = 0; i < HC_CUDA_N_PATHS; i++) {
        if (PATHS[i].section != p->section)
            continue;
        const char *why = PATHS[i].refuses(p, PATHS + i);
        const hc_cuda_work work = why ? (hc_cuda_work){0} : PATHS[i].work(p, PATHS + i);
        const double ns = why ? 0 : nanoseconds(p, i, &work);
        reason = why;
        if (forced ? PATHS + i == *path : !why && (chosen < 0 || ns < least))
            chosen = n, least = ns, *path = PATHS + i;
        if (explanation) {
            HC_ASSERT(n < HC_CUDA_MAX_CANDIDATES);
            explanation->candidate[n].path = PATHS[i].name;
            explanation->candidate[n].id = PATHS[i].id;
            explanation->candidate[n].what = PATHS[i].what;
            explanation->candidate[n].reason = why;
            explanation->candidate[n].seconds = 1e-9 * ns;
            explanation->candidate[n].work = work;
            explanation->n = n + 1;
            explanation->chosen = chosen;
        }
        n++;
    }
    return *path ? HC_OK
                 : hc_fail(error, HC_UNSUPPORTED, "the CUDA kernels do not multiply these arrays (%s): use the CPU",
                           reason);
}
