/* One call, one route. A call has its operands as they came: nothing is decoded, encoded or copied yet. A route is a place that
 * can compute it. The call takes the route that the run names, if that one does not refuse, else the fastest by estimate of
 * those that do not refuse. choose() of route.c is the only place that chooses.
 *
 * Operands lie on the host or on a device; a route refuses a call with one that it does not serve. Routes may differ in bits, so a route other than the CPU's refuses a call whose bits are promised.
 */
#ifndef HC_ROUTE_H
#define HC_ROUTE_H

#include "ops/check.h"
#include "ops/product/plan.h"

typedef struct {
    const hc_run *run;
    const hc_operand *a, *b;
    const hc_format *activations; /* or NULL */
    const hc_view *bias;          /* or NULL */
    const hc_view *out;
    hc_side sides[2]; /* of a and b, by hc_check_matmul */
} hc_call;

typedef struct {
    const char *name, *what;
    const char *(*refuses)(const hc_call *call); /* NULL, or why the route does not do this call */
    /* An estimate where another route is left, too: the time over that of the first route (hc_cpu_seconds). */
    double (*share)(const hc_call *call);
    hc_status (*run)(const hc_call *call, hc_error *error);
} hc_route;

typedef enum {
#define HC_ROUTE(symbol, ...) HC_ROUTE_##symbol,
#include "ops/route/routes.def"
#undef HC_ROUTE
    HC_N_ROUTES
} hc_route_number;

/* NULL, or the sentence of a route that serves one device: an operand lies elsewhere, or the run computes elsewhere. */
static inline const char *hc_elsewhere(const hc_call *call, int device) {
    if (call->sides[0].device != device || call->sides[1].device != device || call->out->device != device ||
        (call->bias && call->bias->device != device))
        return "an operand lies on a device that it does not serve";
    return call->run->device == device ? NULL : "the run is for a device that it does not serve";
}

/* The estimate of the first route; 0 where there is nothing to multiply, 1 where the first route refuses, so that shares of
 * other routes still compare. It makes a plan, which takes as long as a small product. */
double hc_cpu_seconds(const hc_call *call);

/* The plan of the first matrix of a call that has anything to multiply; plan->path is NULL where none has. */
hc_status hc_cpu_plan(const hc_call *call, hc_plan *plan, hc_error *error);

/* out[..., j] += bias[j]. */
void hc_add_bias(const hc_view *bias, const hc_view *out);

#endif
