/* One route per call. A call has its operands as the caller passed them: nothing is decoded, encoded or copied yet. A
 * route is a device or library that can compute the call. The route that the run names is used if it does not refuse.
 * Otherwise the route with the smallest estimate among those that do not refuse is used. Only choose() of route.c
 * chooses.
 *
 * Operands are on the host or on a device. A route refuses operands on a device that it does not support. Routes may
 * give different bits, so a route other than the CPU's refuses a call whose bits are guaranteed.
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
    hc_side sides[2]; /* of a and b, from hc_check_matmul */
} hc_call;

typedef struct {
    const char *name, *what;
    const char *(*refuses)(const hc_call *call); /* NULL, or why the route cannot compute this call */
    /* Called if another route does not refuse either: the estimated time divided by that of the first route
     * (hc_cpu_seconds). */
    double (*share)(const hc_call *call);
    hc_status (*run)(const hc_call *call, hc_error *error);
} hc_route;

typedef enum {
#define HC_ROUTE(symbol, ...) HC_ROUTE_##symbol,
#include "ops/route/routes.def"
#undef HC_ROUTE
    HC_N_ROUTES
} hc_route_number;

/* For a route that serves one device: NULL, or HC_ELSEWHERE if an operand or the run is on another device. */
extern const char HC_ELSEWHERE[];
static inline const char *hc_elsewhere(const hc_call *call, int device) {
    const bool is_on_device = call->sides[0].device == device && call->sides[1].device == device &&
                              call->out->device == device && (!call->bias || call->bias->device == device) &&
                              call->run->device == device;
    return is_on_device ? NULL : HC_ELSEWHERE;
}

/* The estimate of the first route; 0 if there is nothing to multiply, 1 if the first route refuses, so that the shares
 * of other routes can still be compared. It makes a plan, which takes as long as a small matmul. */
double hc_cpu_seconds(const hc_call *call);

/* The plan of the first matrix of a call that is not empty; plan->path is NULL if all are empty. */
hc_status hc_cpu_plan(const hc_call *call, hc_plan *plan, hc_error *error);

/* out[..., j] += bias[j]. */
void hc_add_bias(const hc_view *bias, const hc_view *out);

#endif
