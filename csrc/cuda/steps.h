/* Shared by the planners: steps and memory of a plan, chunks, and the kernels of a family. */
#ifndef HC_CUDA_STEPS_H
#define HC_CUDA_STEPS_H

#include "cuda/device.h"
#include "cuda/hc_cuda.h"

enum { HC_CUDA_HOPPER = 90 /* architecture of the modules that end in _90a */ };
enum { HC_CUDA_MAX_THREADS = 128, HC_CUDA_SHARED_BYTES = 48 << 10 };

/* The caller sets all of its parameters. */
hc_cuda_step *hc_cuda_add_step(hc_cuda_plan *plan, const char *module, const char *kernel, int64_t x, int64_t y,
                               int threads, int64_t shared_bytes, int64_t params_bytes);
void hc_cuda_add_clear(hc_cuda_plan *plan, void *data, int64_t bytes);
/* A step that writes so many bytes, whole numbers of float64, to the workspace; returns their address. */
void *hc_cuda_add_table(hc_cuda_plan *plan, const void *from, int64_t bytes);
/* The step that decodes components to values of `size` bytes; its chunks are planned. */
void hc_cuda_add_decode(hc_cuda_plan *plan, hc_cuda_codec *codec, int size);
/* No steps, and none of the workspace is used. */
void hc_cuda_begin(hc_cuda_plan *plan, void *workspace);
/* The next `bytes` of the workspace: an address of the device, or NULL where there is no workspace yet. */
void *hc_cuda_reserve(hc_cuda_plan *plan, int64_t bytes);

/* The smallest number of groups whose components begin and end on bytes; shared memory for `size` bytes a value. */
hc_status hc_cuda_plan_chunks(const hc_format *format, const hc_geometry *geometry, int size, bool has_components,
                              hc_cuda_chunks *chunks, hc_error *error);
/* True if rows of whole chunks follow each other in memory. */
bool hc_cuda_is_flat(const hc_cuda_chunks *chunks, const hc_geometry *geometry, const hc_row_view *view);
/* True if the components of each chunk follow those of the chunk before. */
bool hc_cuda_has_flat_parts(const hc_cuda_chunks *chunks, const hc_geometry *geometry, const hc_components *parts);
int64_t hc_cuda_shared_bytes(const hc_cuda_chunks *chunks, int size);

hc_status hc_cuda_packed_geometry(const hc_packed *packed, hc_geometry *geometry, hc_error *error);
/* The step that decodes a packed array to rows of float32 or float64, in the workspace; of a pattern, what is kept. */
hc_status hc_cuda_decode_rows(const hc_packed *packed, const hc_geometry *geometry, hc_dtype dtype, hc_cuda_plan *plan,
                              const void **decoded, hc_error *error);
/* The steps that decode an array with a pattern: what is kept, to the workspace, and then to whole columns, `between` elsewhere. */
hc_status hc_cuda_add_decode_kept(const hc_packed *packed, const hc_geometry *geometry, float between,
                                  const hc_view *out, int n_axes, const int *axes, hc_cuda_plan *plan, hc_error *error);
/* The step that notes where the gradient of x passes. */
hc_status hc_cuda_add_note(const hc_view *x, const hc_cuda_note *note, const float *thresholds, const hc_format *format,
                           const hc_geometry *geometry, int n_axes, const int *axes, hc_cuda_plan *plan,
                           hc_error *error);
/* HC_UNSUPPORTED where there are no kernels for it. */
hc_status hc_cuda_refuse(const hc_format *format, const hc_geometry *geometry, bool encodes, hc_error *error);
/* The result of quantizing: one of these. The caller sets n_limbs of integers. */
typedef struct {
    const hc_components *parts;
    const hc_view *y;
    const hc_cuda_integer_rows *to;
} hc_cuda_result;
/* Steps that quantize x. What the workspace has from byte `cleared` on is cleared first; -1: there is nothing. */
hc_status hc_cuda_add_quantize(const hc_view *x, const float *thresholds, const hc_format *format,
                               const hc_geometry *geometry, int n_axes, const int *axes, const hc_cuda_result *result,
                               int64_t cleared, hc_cuda_plan *plan, hc_error *error);
/* Places scales behind the components in a thread's own shared memory. */
void hc_cuda_add_own_scales(hc_cuda_chunks *chunks, hc_cuda_integer_rows *to);

#endif
