/* Gradients for planes of pixels, each of one channel and one filter: a task is some planes of an image. hc.h states them.
 *
 * Memory: for each thread two planes of gradients with zeros around them.
 */
#include "base/threads.h"
#include "kernels/kernel.h"
#include "ops/check.h"

typedef struct {
    hc_plane_gradient_f32_fn *kernel;
    hc_plane_gradient plane; /* of the first task */
    int64_t channels, together, thread_floats;
} planes_job;

static void plane_task(void *context, int64_t task, int thread) {
    const planes_job *job = context;
    const int64_t parts = hc_ceil_div(job->channels, job->together), channel = task % parts * job->together;
    const int64_t first = task / parts * job->channels + channel;
    hc_plane_gradient plane = job->plane;
    plane.planes = hc_min(job->together, job->channels - channel);
    plane.dy += first * plane.rows * plane.columns;
    plane.w += channel * plane.side[0] * plane.side[1];
    plane.c += first * plane.height * plane.width;
    plane.work += thread * job->thread_floats;
    job->kernel(&plane);
}

static bool is_contiguous(const hc_view *view) {
    int64_t size = sizeof(float);
    bool fits = true;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->shape[i] == 0) /* no values, whatever the strides are */
            return true;
        fits = fits && (view->shape[i] == 1 || view->strides[i] == size);
        size *= view->shape[i];
    }
    return fits;
}

/* Sizes of the memory of a plane do not overflow. */
static bool is_padding(int64_t n) { return n >= 0 && n <= (int64_t)1 << 30; }

static hc_status check(const hc_view *dy, const hc_view *w, const hc_window *window, const hc_view *dx,
                       hc_error *error) {
    const hc_view *const all[] = {dy, w, dx};
    const char *const names[] = {"dy", "w", "dx"};
    for (int i = 0; i < 3; i++) {
        const hc_status status = hc_check_view(names[i], all[i], error);
        if (status != HC_OK)
            return status;
        if (all[i]->dtype != HC_F32 || all[i]->ndim != 4 || !is_contiguous(all[i]))
            return hc_fail(error, HC_VALUE, "conv2d_gradient: %s is not contiguous float32 with four dimensions",
                           names[i]);
    }
    const bool fits = dy->shape[0] == dx->shape[0] && dy->shape[1] == dx->shape[1] && w->shape[0] == dx->shape[1] &&
                      w->shape[1] == 1 && window->groups == dx->shape[1];
    const bool is_supported = w->shape[2] <= HC_GRADIENT_SIDE && w->shape[3] <= HC_GRADIENT_SIDE &&
                              window->stride[0] == 2 && window->stride[1] == 2 && window->dilation[0] == 1 &&
                              window->dilation[1] == 1 && is_padding(window->pad_before[0]) &&
                              is_padding(window->pad_before[1]);
    return fits && is_supported ? HC_OK : hc_fail(error, HC_VALUE, "conv2d_gradient: shapes that do not fit");
}

hc_status hc_conv2d_gradient_planes(const hc_run *run, const hc_view *dy, const hc_view *w, const hc_window *window,
                                    const hc_view *dx, hc_error *error) {
    const hc_status status = check(dy, w, window, dx, error);
    if (status != HC_OK || hc_values(dx) == 0)
        return status;
    enum { TOGETHER = 32, TASKS = 4 };
    const int64_t each = hc_ceil_div(dx->shape[0] * dx->shape[1], TASKS * (int64_t)run->n_threads);
    const int64_t together = hc_min(hc_min(each, TOGETHER), dx->shape[1]);
    const int64_t tasks = dx->shape[0] * hc_ceil_div(dx->shape[1], together);
    const int n_threads = (int)hc_min(run->n_threads, tasks);
    planes_job job = {.kernel = HC_PICK(plane_gradient_f32, run),
                      .channels = dx->shape[1],
                      .together = together,
                      .plane = {.dy = dy->data,
                                .w = w->data,
                                .c = dx->data,
                                .rows = dy->shape[2],
                                .columns = dy->shape[3],
                                .height = dx->shape[2],
                                .width = dx->shape[3],
                                .top = window->pad_before[0],
                                .left = window->pad_before[1],
                                .side = {(int)w->shape[2], (int)w->shape[3]}}};
    job.thread_floats = hc_round_up(hc_plane_gradient_work(&job.plane), HC_CACHE_LINE / 4);
    job.plane.work = hc_alloc_aligned(n_threads * job.thread_floats * (int64_t)sizeof(float));
    if (!job.plane.work)
        return hc_fail(error, HC_MEMORY, "conv2d_gradient: not enough memory");
    hc_parallel(n_threads, tasks, plane_task, &job);
    hc_free_aligned(job.plane.work);
    return HC_OK;
}
