/* The table of routes.def, and the choice. */
#include "ops/route/route.h"

#define HC_ROUTE(symbol, ...)                                                                                          \
    const char *hc_##symbol##_refuses(const hc_call *call);                                                            \
    double hc_##symbol##_share(const hc_call *call);                                                                   \
    hc_status hc_##symbol##_run(const hc_call *call, hc_error *error);
#include "ops/route/routes.def"
#undef HC_ROUTE

static const hc_route ROUTES[HC_N_ROUTES] = {
#define HC_ROUTE(symbol, text, does)                                                                                   \
    {.name = text,                                                                                                     \
     .what = does,                                                                                                     \
     .refuses = hc_##symbol##_refuses,                                                                                 \
     .share = hc_##symbol##_share,                                                                                     \
     .run = hc_##symbol##_run},
#include "ops/route/routes.def"
#undef HC_ROUTE
};
_Static_assert((int)HC_N_ROUTES <= (int)HC_MAX_ROUTES, "hc_explain has room for every route");

const char *hc_route_name(int number) { return number >= 0 && number < HC_N_ROUTES ? ROUTES[number].name : NULL; }

typedef struct {
    int chosen;                      /* -1: all refuse */
    const char *reason[HC_N_ROUTES]; /* why not, or NULL */
    double share[HC_N_ROUTES];       /* 0 if it was not needed */
} hc_choice;

/* With `all`, shares that the choice does not need are computed too. */
static hc_choice choose(const hc_call *call, bool all) {
    hc_choice choice = {.chosen = -1};
    const int asked = call->run->route - 1;
    int left = 0;
    for (int i = 0; i < HC_N_ROUTES; i++) {
        choice.reason[i] = ROUTES[i].refuses(call);
        if (choice.reason[i])
            continue;
        left++;
        choice.chosen = i;
    }
    const bool is_asked = asked >= 0 && !choice.reason[asked];
    for (int i = 0; i < HC_N_ROUTES && left > 1 && (all || !is_asked); i++)
        if (!choice.reason[i])
            choice.share[i] = ROUTES[i].share(call);
    for (int i = 0; i < HC_N_ROUTES && left > 1; i++)
        if (!choice.reason[i] && choice.share[i] < choice.share[choice.chosen])
            choice.chosen = i;
    if (is_asked)
        choice.chosen = asked;
    return choice;
}

static hc_status make_call(const hc_run *run, const hc_operand *a, const hc_operand *b, const hc_format *activations,
                           const hc_view *bias, const hc_view *out, hc_call *call, hc_error *error) {
    call->run = run;
    call->a = a, call->b = b;
    call->activations = activations;
    call->bias = bias;
    call->out = out;
    return hc_check_matmul(a, b, activations, bias, out, call->sides, error);
}

const char HC_ELSEWHERE[] = "it does not serve the device of an operand or of the run";

/* The sentence of a call that all routes refuse: that of a route that serves the device, if there is one. */
static hc_status refuse(const hc_call *call, const hc_choice *choice, hc_error *error) {
    for (int i = 0; i < HC_N_ROUTES; i++)
        if (call->run->device != HC_HOST && choice->reason[i] != HC_ELSEWHERE)
            return hc_fail(error, HC_UNSUPPORTED, "matmul: %s", choice->reason[i]);
    const struct {
        const char *name;
        int device;
    } places[] = {{"a", call->sides[0].device},
                  {"b", call->sides[1].device},
                  {"out", call->out->device},
                  {"bias", call->bias ? call->bias->device : HC_HOST}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].device != HC_HOST)
            return hc_fail(
                error, HC_UNSUPPORTED,
                "matmul: %s is on device %d, where no route can compute this call: copy it to the host first",
                places[i].name, places[i].device);
    return hc_fail(error, HC_UNSUPPORTED, "matmul: the run is for device %d, where no route can compute this call",
                   call->run->device);
}

hc_status hc_matmul(const hc_run *run, const hc_operand *a, const hc_operand *b, const hc_format *activations,
                    const hc_view *bias, const hc_view *out, hc_error *error) {
    hc_call call;
    const hc_status status = make_call(run, a, b, activations, bias, out, &call, error);
    if (status != HC_OK)
        return status;
    const hc_choice choice = choose(&call, false);
    return choice.chosen < 0 ? refuse(&call, &choice, error) : ROUTES[choice.chosen].run(&call, error);
}

hc_status hc_explain(const hc_run *run, const hc_operand *a, const hc_operand *b, const hc_format *activations,
                     const hc_view *out, hc_explanation *found, hc_error *error) {
    *found = (hc_explanation){.chosen = -1, .route = -1};
    hc_call call;
    hc_plan plan = {0};
    hc_status status = make_call(run, a, b, activations, NULL, out, &call, error);
    const bool plans = status == HC_OK && !ROUTES[0].refuses(&call);
    if (plans)
        status = hc_cpu_plan(&call, &plan, error);
    if (status != HC_OK || (plans && !plan.path))
        return status;
    const hc_choice choice = choose(&call, true);
    if (choice.chosen < 0)
        return refuse(&call, &choice, error);
    const double cpu = plans ? hc_cpu_seconds(&call) : 0;
    found->route = choice.chosen;
    found->n_routes = HC_N_ROUTES;
    for (int i = 0; i < HC_N_ROUTES; i++) {
        found->of_route[i].name = ROUTES[i].name;
        found->of_route[i].what = ROUTES[i].what;
        found->of_route[i].reason = choice.reason[i];
        found->of_route[i].seconds = choice.share[i] * cpu;
    }
    found->n = plan.n;
    for (int i = 0; i < plan.n; i++) {
        const hc_path *path = plan.candidate[i].path;
        found->candidate[i].path = path->name;
        found->candidate[i].id = path->id;
        found->candidate[i].what = path->what;
        found->candidate[i].reason = plan.candidate[i].reason;
        found->candidate[i].seconds = plan.candidate[i].seconds;
        found->candidate[i].work = plan.candidate[i].work;
        if (path == plan.path)
            found->chosen = i;
    }
    return HC_OK;
}
