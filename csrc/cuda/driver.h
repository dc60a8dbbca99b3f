/* The driver of CUDA, opened at run time: nothing is linked, and a machine without it runs everything else.
 *
 * Devices are numbered as the driver numbers them, each is used through its primary context, which other libraries share.
 * Every function may be called by several threads. Errors are whole sentences; HC_MEMORY: the device has no memory left.
 */
#ifndef HC_CUDA_DRIVER_H
#define HC_CUDA_DRIVER_H

#include "cuda/hc_cuda.h"

enum { HC_CUDA_MAX_DEVICES = 16 };
typedef struct {
    char name[128];
    int major, minor; /* compute capability */
    int multiprocessors;
    int64_t bytes; /* of memory */
} hc_cuda_device;

/* Opens libcuda.so.1, or another library with its functions; a second call does nothing once one is open. HC_UNSUPPORTED:
 * there is no driver or no device. */
hc_status hc_cuda_open(const char *library, hc_error *error);
/* Before the first launch: a module of kernels by name, a fatbin for cuModuleLoadData. Both stay in memory. */
hc_status hc_cuda_give(const char *name, const void *image, hc_error *error);
/* A library that has the symbol hc_cuda_brings_kernels has them itself (tests/cuda/host/fake_driver.cpp): it is given the
 * name of a module in place of its image. */
bool hc_cuda_brings_kernels(void);
int hc_cuda_devices(void);            /* 0 before hc_cuda_open */
int hc_cuda_driver_version(void);     /* 13000 is 13.0 */
int hc_cuda_architecture(int device); /* 90: compute capability 9.0; 0: there is no such device */
int hc_cuda_multiprocessors(int device);
hc_status hc_cuda_describe(int device, hc_cuda_device *description, hc_error *error);

/* All calls of a thread between these two enter the device once. hc_cuda_leave only after HC_OK. */
hc_status hc_cuda_enter(int device, hc_error *error);
void hc_cuda_leave(void);

/* `stream` is a CUstream: 0 and 1 are the default stream. Memory is freed on the stream that it was allocated on. */
hc_status hc_cuda_allocate(int device, int64_t bytes, void *stream, void **address, hc_error *error);
void hc_cuda_free(int device, void *address, void *stream);
/* Both wait until the copy has ended. */
hc_status hc_cuda_upload(int device, void *to, const void *from, int64_t bytes, void *stream, hc_error *error);
hc_status hc_cuda_download(int device, void *to, const void *from, int64_t bytes, void *stream, hc_error *error);
/* A copy on the device, of memory that does not overlap; waits for nothing. */
hc_status hc_cuda_move(int device, void *to, const void *from, int64_t bytes, void *stream, hc_error *error);
hc_status hc_cuda_wait(int device, void *stream, hc_error *error);
/* A word of the host's memory that kernels of every device may write, 0 at first; it is given back after the wait. */
hc_status hc_cuda_lend_word(int device, uint32_t **word, hc_error *error);
void hc_cuda_return_word(uint32_t *word); /* or NULL */
/* A captured stream records a CUDA graph: no call may wait for it. */
bool hc_cuda_is_captured(int device, void *stream);
/* The device whose memory an address is in; HC_VALUE where it is in none's. */
hc_status hc_cuda_place(const void *address, int *device, hc_error *error);
/* Launches all steps of a plan, and waits for none. */
hc_status hc_cuda_launch(int device, const hc_cuda_plan *plan, void *stream, hc_error *error);

#endif
