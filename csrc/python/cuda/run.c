/* The binding of CUDA: calls are planned twice, for the size of their workspace and with it, and launched (call.h). */
#include "python/cuda/call.h"

#include <stdatomic.h>
#include <string.h>

enum { OWN_MOST = 4 << 20 /* bytes of a workspace, where the caller has an allocator */ };

int hc_cuda_parse_note(PyObject *object, hc_cuda_note *note) {
    unsigned long long address;
    if (object == Py_None)
        return 1;
    if (!hc_parse_tuple(object, "cuda: note", "Kiff", &address, &note->kind, &note->low, &note->high))
        return 0;
    note->to = (void *)(uintptr_t)address;
    return 1;
}

static int number_of(const hc_settings *settings) { return settings->run.device - HC_HOST - 1; }

static hc_status plan_call(const hc_cuda_call *call, void *workspace, hc_cuda_plan *plan, hc_error *error) {
    const hc_operand x = {call->a ? NULL : &call->x, call->a};
    switch (call->what) {
    case QUANTIZE:
        return hc_cuda_plan_quantize(&call->x, &call->clip, &call->packed, workspace, plan, error);
    case FAKE_QUANTIZE:
        return hc_cuda_plan_fake_quantize(&call->x, &call->clip, &call->format, call->n_axes, call->axes, &call->out,
                                          workspace, plan, error);
    case DEQUANTIZE:
        return hc_cuda_plan_dequantize(&call->packed, call->between, &call->out, workspace, plan, error);
    case CHANCE:
        return hc_cuda_plan_chance(&call->x, &call->clip, &call->packed, &call->levels, call->infinity, call->seed,
                                   &call->out, workspace, plan, error);
    case PASS:
        return hc_cuda_plan_pass(&call->x, call->clip.note.to, (hc_cuda_note_kind)call->clip.note.kind, call->out.data,
                                 plan, error);
    case STEPS:
        return hc_cuda_plan_steps(&call->x, &call->format, call->n_axes, call->axes, &call->scales, call->out.data,
                                  call->slope, plan, error);
    case SLOPE_SUMS:
        return hc_cuda_plan_slope_sums(&call->x, &call->format, call->n_axes, call->axes, call->slope, call->values,
                                       plan, error);
    case PREPACK:
        return hc_cuda_plan_prepack(&call->packed, workspace, plan, error);
    case CONV2D:
        return hc_cuda_plan_conv2d(&call->x, call->activations, &call->packed, &call->window, call->relu, call->bias,
                                   &call->out, workspace, plan, error);
    case LAYER:
        return hc_cuda_plan_layer(&call->layer, plan, error);
    case ATTENTION:
        return hc_cuda_plan_attention(&call->attention, workspace, plan, error);
    case PRUNE:
        return hc_cuda_plan_prune(&call->x, call->n, call->m, call->n_axes, call->axes, call->values, call->metadata,
                                  plan, error);
    default:
        return hc_cuda_plan_matmul(&x, call->activations, &call->packed, call->bias, &call->out, workspace, plan,
                                   error);
    }
}

/* Bytes of the workspace of earlier calls, by a hash of what it depends on: a guess, which is checked. 0: there was none, or
 * it needs no workspace. With a guess a call is planned once. A graph gets none: another call may have left it, and nothing
 * is allocated there that the plan does not need. */
static _Atomic int64_t guesses[256];

static _Atomic int64_t *guess_of(const hc_cuda_call *call) {
    const hc_view *x = &call->x;
    uint64_t hash = (uint64_t)call->what + 131 * (uint64_t)(uintptr_t)call->packed.components.part[HC_CODES].data +
                    31 * (uint64_t)(call->activations ? 1 + call->activations->family : 0) +
                    7 * (uint64_t)call->format.family;
    for (int i = 0; i < x->ndim; i++)
        hash = hash * 0x9e3779b97f4a7c15u + (uint64_t)x->shape[i];
    return &guesses[(hash ^ hash >> 32) % 256];
}

static hc_status plan_in(hc_settings *settings, const hc_cuda_call *call, void *workspace, hc_cuda_plan *plan,
                         hc_error *error) {
    const hc_status status = plan_call(call, workspace, plan, error);
    settings->failed = status == HC_OK; /* what fails from here on is the driver */
    return status;
}

/* Plans and launches with a workspace of our own of so many bytes; *fits: it was large enough. */
static hc_status run_in(hc_settings *settings, const hc_cuda_call *call, int64_t bytes, hc_cuda_plan *plan, bool *fits,
                        hc_error *error) {
    const int device = number_of(settings);
    void *workspace = NULL;
    settings->failed = *fits = true;
    hc_status status = hc_cuda_allocate(device, bytes, settings->stream, &workspace, error);
    if (status != HC_OK)
        return status;
    status = plan_in(settings, call, workspace, plan, error);
    *fits = status != HC_OK || plan->workspace_bytes <= bytes;
    if (status == HC_OK && *fits)
        status = hc_cuda_launch(device, plan, settings->stream, error);
    hc_cuda_free(device, workspace, settings->stream);
    return status;
}

/* The caller's memory must be used: in a graph, for much, and for panels, which are kept. */
static bool must_ask(const hc_settings *settings, const hc_cuda_call *call, int64_t bytes) {
    return settings->allocate &&
           (call->what == PREPACK || bytes > OWN_MOST || hc_cuda_is_captured(number_of(settings), settings->stream));
}

static hc_status run_entered(hc_settings *settings, const hc_cuda_call *call, hc_cuda_plan *plan, hc_error *error) {
    _Atomic int64_t *guess = guess_of(call);
    const int64_t guessed = *guess;
    bool fits;
    hc_status status = HC_OK;
    if (guessed && !must_ask(settings, call, guessed) && !hc_cuda_is_captured(number_of(settings), settings->stream)) {
        status = run_in(settings, call, guessed, plan, &fits, error);
        if (status != HC_MEMORY && fits) {
            *guess = status == HC_OK ? plan->workspace_bytes : 0;
            return status;
        }
    }
    status = plan_in(settings, call, NULL, plan, error);
    *guess = status == HC_OK ? plan->workspace_bytes : 0;
    if (status != HC_OK)
        return status;
    if (plan->workspace_bytes == 0)
        return hc_cuda_launch(number_of(settings), plan, settings->stream, error);
    if (!must_ask(settings, call, plan->workspace_bytes))
        return run_in(settings, call, plan->workspace_bytes, plan, &fits, error);
    settings->wanted = plan->workspace_bytes;
    return HC_OK;
}

/* Plans and launches, unless the caller's memory must be used. */
static hc_status run_alone(hc_settings *settings, const hc_cuda_call *call, hc_cuda_plan *plan, hc_error *error) {
    hc_status status = hc_cuda_enter(number_of(settings), error);
    settings->failed = status != HC_OK;
    if (status != HC_OK)
        return status;
    status = run_entered(settings, call, plan, error);
    hc_cuda_leave();
    return status;
}

/* The same, and waits for the first row with a value that the format refuses. */
static hc_status run_checked(hc_settings *settings, const hc_cuda_call *call, hc_cuda_plan *plan, hc_error *error) {
    const int device = number_of(settings);
    settings->failed = true;
    if (hc_cuda_is_captured(device, settings->stream))
        return hc_fail(error, HC_VALUE,
                       "cuda: the stream is captured into a graph, and this call waits for it: call it before");
    hc_status status = hc_cuda_lend_word(device, &plan->illegal, error);
    if (status == HC_OK)
        status = run_alone(settings, call, plan, error);
    if (status == HC_OK)
        status = hc_cuda_wait(device, settings->stream, error);
    if (status == HC_OK && *plan->illegal)
        settings->row = (int64_t)UINT32_MAX - *plan->illegal;
    hc_cuda_return_word(plan->illegal);
    return status;
}

/* With memory of the caller. */
static hc_status run_with(hc_settings *settings, const hc_cuda_call *call, hc_cuda_plan *plan, hc_error *error) {
    settings->wanted = 0;
    const hc_status status = plan_in(settings, call, settings->workspace, plan, error);
    return status == HC_OK ? hc_cuda_launch(number_of(settings), plan, settings->stream, error) : status;
}

static _Atomic(hc_cuda_plan *) spare; /* of an earlier call: a plan is large */

/* NULL: out of memory. */
static hc_cuda_plan *new_plan(const hc_settings *settings) {
    const int device = number_of(settings);
    hc_cuda_plan *plan = atomic_exchange(&spare, NULL);
    plan = plan ? plan : hc_alloc_aligned(sizeof *plan);
    if (!plan)
        return NULL;
    plan->architecture = hc_cuda_architecture(device);
    plan->multiprocessors = hc_cuda_multiprocessors(device);
    plan->device_order = settings->device_order;
    plan->path = settings->run.path ? hc_any_path_name(settings->run.path - 1) : NULL;
    plan->explanation = NULL;
    plan->illegal = NULL;
    return plan;
}

static void free_plan(hc_cuda_plan *plan) { hc_free_aligned(atomic_exchange(&spare, plan)); }

hc_status hc_cuda_run_call(hc_settings *settings, const hc_cuda_call *call, hc_error *error) {
    error->argument = NULL;
    hc_cuda_plan *plan = new_plan(settings);
    if (!plan)
        return hc_fail(error, HC_MEMORY, "cuda: not enough memory for a plan");
    const hc_status status = settings->workspace               ? run_with(settings, call, plan, error)
                             : call->checks && settings->waits ? run_checked(settings, call, plan, error)
                                                               : run_alone(settings, call, plan, error);
    free_plan(plan);
    return status;
}

bool hc_cuda_lends(hc_settings *settings) {
    if (!settings->wanted)
        return false;
    PyObject *answer = PyObject_CallFunction(settings->allocate, "L", (long long)settings->wanted);
    settings->workspace = answer ? hc_address(answer) : NULL;
    Py_XDECREF(answer);
    if (!settings->workspace && !PyErr_Occurred())
        PyErr_SetString(PyExc_MemoryError, "cuda: out of memory");
    return !PyErr_Occurred();
}

PyObject *hc_cuda_answer(const hc_settings *settings, hc_status status, const hc_error *error, hc_held *held) {
    hc_release(held);
    if (status != HC_OK)
        return settings->failed ? hc_raise_driver(status, error) : hc_raise(status, error);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(settings->row);
}

PyObject *hc_cuda_finish(hc_settings *settings, const hc_cuda_call *call, hc_held *held) {
    hc_error error = {.argument = NULL};
    hc_status status;
    do
        HC_WITHOUT_GIL(hc_cuda_run_call(settings, call, &error));
    while (status == HC_OK && hc_cuda_lends(settings));
    return hc_cuda_answer(settings, status, &error, held);
}

static PyObject *candidates_of(const hc_cuda_explanation *found) {
    PyObject *candidates = PyList_New(found->n);
    for (int i = 0; candidates && i < found->n; i++) {
        const hc_cuda_work *work = &found->candidate[i].work;
        PyObject *one = Py_BuildValue("(sszds(ddd))", found->candidate[i].path, found->candidate[i].what,
                                      found->candidate[i].reason, found->candidate[i].seconds, found->candidate[i].id,
                                      work->rounds, work->bytes, work->codes);
        if (one)
            PyList_SET_ITEM(candidates, i, one);
        else
            Py_CLEAR(candidates);
    }
    return candidates;
}

static PyObject *kernels_of(const hc_cuda_plan *plan) {
    PyObject *names = PyList_New(plan->n);
    for (int i = 0; names && i < plan->n; i++) {
        PyObject *name = PyUnicode_FromString(plan->step[i].kernel);
        if (name)
            PyList_SET_ITEM(names, i, name);
        else
            Py_CLEAR(names);
    }
    return names;
}

PyObject *hc_cuda_explain(const hc_settings *settings, const hc_cuda_call *call) {
    hc_error error = {.argument = NULL};
    hc_cuda_explanation found = {.n = 0};
    hc_cuda_plan *plan = new_plan(settings);
    if (!plan)
        return PyErr_NoMemory();
    plan->explanation = &found;
    const hc_status status = plan_call(call, NULL, plan, &error);
    PyObject *answer = status == HC_OK ? Py_BuildValue("(iNN)", found.chosen, candidates_of(&found), kernels_of(plan))
                                       : hc_raise(status, &error);
    free_plan(plan);
    return answer;
}

/* The route of matmuls. `run` is the first member of the settings of the call. */
static hc_status matmul_of_route(const hc_run *run, const hc_operand *a, const hc_packed *b,
                                 const hc_format *activations, const hc_view *bias, const hc_view *out,
                                 hc_error *error) {
    hc_cuda_call call = {.n = 0};
    hc_cuda_fill_matmul(&call, a, activations, b, bias, out);
    return hc_cuda_run_call((hc_settings *)run, &call, error);
}

void hc_cuda_offer_route(void) { hc_cuda_use(matmul_of_route); }
