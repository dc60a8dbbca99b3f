/* Functions of the driver by dlsym, the primary context of each device, modules and kernels on first use (cuda/driver.h). */
#include "cuda/driver.h"
#include "base/platform/platform.h"

#include <stdatomic.h>
#include <string.h>

/* Values of cuda.h, which a build does not need. */
enum { OUT_OF_MEMORY = 2, NO_CONTEXT = 201, NO_BINARY = 209, UNSUPPORTED_PTX = 222 };
enum { LEAST_VERSION = 13000 /* of the driver, as nvcc 13 makes the fatbins */, RELAXED = 2 };
enum { PINNED = 1, OF_DEVICE = 1, RELEASE_THRESHOLD = 4, KEPT_SHARE = 8 };
enum { MULTIPROCESSORS = 16, COMPUTE_MAJOR = 75, COMPUTE_MINOR = 76, HAS_MEMORY_POOLS = 115 };
enum { POINTER_MEMORY_TYPE = 2, POINTER_DEVICE = 9, MEMORY_OF_DEVICE = 2 };
enum { PORTABLE_AND_MAPPED = 3, WORDS_BYTES = 4096, WORD_BYTES = 64 /* of a cache line */ };
enum { MAX_DYNAMIC_SHARED_BYTES = 8, PLAIN_SHARED_BYTES = 48 << 10, MAX_MODULES = 32, MAX_KERNELS = 256 };
#define PARAMS_POINTER ((void *)1)
#define PARAMS_SIZE ((void *)2)
#define PARAMS_END ((void *)0)

typedef int cu_result;
typedef unsigned long long cu_address;
typedef struct {
    int kind, handles, place_kind, place;
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} cu_pool;

/* All functions that are used, with the names of the library. */
#define HC_CUDA_FUNCTIONS(F)                                                                                           \
    F(init, "cuInit", (unsigned flags))                                                                                \
    F(version, "cuDriverGetVersion", (int *version))                                                                   \
    F(count, "cuDeviceGetCount", (int *count))                                                                         \
    F(get, "cuDeviceGet", (int *device, int number))                                                                   \
    F(name, "cuDeviceGetName", (char *name, int bytes, int device))                                                    \
    F(total, "cuDeviceTotalMem_v2", (size_t *bytes, int device))                                                       \
    F(attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                                      \
    F(retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                                                \
    F(push, "cuCtxPushCurrent_v2", (void *context))                                                                    \
    F(pop, "cuCtxPopCurrent_v2", (void **context))                                                                     \
    F(load, "cuModuleLoadData", (void **module, const void *image))                                                    \
    F(function, "cuModuleGetFunction", (void **function, void *module, const char *name))                              \
    F(set_attribute, "cuFuncSetAttribute", (void *function, int attribute, int value))                                 \
    F(launch, "cuLaunchKernel",                                                                                        \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,          \
       unsigned block_z, unsigned shared_bytes, void *stream, void **params, void **extra))                            \
    F(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                                                 \
    F(make_pool, "cuMemPoolCreate", (void **pool, const cu_pool *properties))                                          \
    F(set_pool, "cuMemPoolSetAttribute", (void *pool, int attribute, void *value))                                     \
    F(allocate, "cuMemAllocFromPoolAsync", (cu_address * address, size_t bytes, void *pool, void *stream))             \
    F(give_back, "cuMemFreeAsync", (cu_address address, void *stream))                                                 \
    F(allocate_host, "cuMemHostAlloc", (void **address, size_t bytes, unsigned flags))                                 \
    F(upload, "cuMemcpyHtoDAsync_v2", (cu_address to, const void *from, size_t bytes, void *stream))                   \
    F(download, "cuMemcpyDtoHAsync_v2", (void *to, cu_address from, size_t bytes, void *stream))                       \
    F(move, "cuMemcpyDtoDAsync_v2", (cu_address to, cu_address from, size_t bytes, void *stream))                      \
    F(wait, "cuStreamSynchronize", (void *stream))                                                                     \
    F(capture, "cuStreamIsCapturing", (void *stream, int *status))                                                     \
    F(pointer, "cuPointerGetAttribute", (void *value, int attribute, cu_address address))                              \
    F(text, "cuGetErrorString", (cu_result result, const char **text))

static struct {
#define F(field, symbol, arguments) cu_result(*field) arguments;
    HC_CUDA_FUNCTIONS(F)
#undef F
} cu;

static hc_mutex mutex = HC_MUTEX_INIT;
static atomic_bool is_open; /* all below is then set */
static bool brings_kernels;
static int n_devices, version;
static void *contexts[HC_CUDA_MAX_DEVICES]; /* NULL before first use */
static atomic_bool has_context[HC_CUDA_MAX_DEVICES];
static void *pools[HC_CUDA_MAX_DEVICES];
typedef union hc_cuda_word {
    uint32_t value;
    union hc_cuda_word *next; /* of one that nobody has */
    char line[WORD_BYTES];
} hc_cuda_word;
static hc_cuda_word *free_words;
static struct {
    const char *name;
    const void *image;
} images[MAX_MODULES];
static struct {
    const char *name;
    void *module;
} modules[HC_CUDA_MAX_DEVICES][MAX_MODULES];
static struct {
    const char *kernel; /* of a plan: compared by address */
    void *function;
    uint32_t shared_bytes; /* that it may use */
} kernels[HC_CUDA_MAX_DEVICES][MAX_KERNELS];

static hc_status fail_at(cu_result result, const char *what, hc_error *error) {
    const char *text = NULL;
    if (cu.text)
        cu.text(result, &text);
    if (result == NO_BINARY || result == UNSUPPORTED_PTX)
        return hc_fail(error, HC_UNSUPPORTED,
                       "cuda: the driver cannot load the kernels of this build (%s): update the driver",
                       text ? text : "error");
    return hc_fail(error, result == OUT_OF_MEMORY ? HC_MEMORY : HC_VALUE, "cuda: %s failed: %s (error %d)", what,
                   text ? text : "unknown error", result);
}

static hc_status open_library(const char *path, hc_error *error) {
    char reason[256];
    void *library = hc_library_open(path, reason, sizeof reason);
    if (!library)
        return hc_fail(error, HC_UNSUPPORTED, "cuda: no driver (%s): install the NVIDIA driver", reason);
    brings_kernels = hc_library_symbol(library, "hc_cuda_brings_kernels") != NULL;
#define F(field, symbol, arguments)                                                                                    \
    *(void **)&cu.field = hc_library_symbol(library, symbol);                                                          \
    if (!cu.field)                                                                                                     \
        return hc_fail(error, HC_UNSUPPORTED, "cuda: the driver has no function %s: update the driver", symbol);
    HC_CUDA_FUNCTIONS(F)
#undef F
    cu_result result = cu.init(0);
    if (result == 0)
        result = cu.version(&version);
    if (result == 0)
        result = cu.count(&n_devices);
    if (result != 0) {
        const char *text = NULL;
        cu.text(result, &text);
        return hc_fail(error, HC_UNSUPPORTED, "cuda: the driver does not start: %s (error %d)",
                       text ? text : "unknown error", result);
    }
    if (version < LEAST_VERSION)
        return hc_fail(error, HC_UNSUPPORTED, "cuda: the driver supports CUDA %d.%d, expected 13.0: update it to 580",
                       version / 1000, version % 1000 / 10);
    n_devices = n_devices < HC_CUDA_MAX_DEVICES ? n_devices : HC_CUDA_MAX_DEVICES;
    if (n_devices < 1)
        return hc_fail(error, HC_UNSUPPORTED, "cuda: the driver finds no device");
    is_open = true;
    return HC_OK;
}

hc_status hc_cuda_open(const char *path, hc_error *error) {
    hc_mutex_lock(&mutex);
    const hc_status status = is_open ? HC_OK : open_library(path, error);
    hc_mutex_unlock(&mutex);
    return status;
}

bool hc_cuda_brings_kernels(void) { return brings_kernels; }

hc_status hc_cuda_give(const char *name, const void *image, hc_error *error) {
    hc_mutex_lock(&mutex);
    int i = 0;
    while (i < MAX_MODULES && images[i].name && strcmp(images[i].name, name) != 0)
        i++;
    if (i < MAX_MODULES) {
        images[i].name = name;
        images[i].image = image;
    }
    hc_mutex_unlock(&mutex);
    return i < MAX_MODULES ? HC_OK
                           : hc_fail(error, HC_VALUE, "cuda: %s is one of more than %d modules", name, MAX_MODULES);
}

int hc_cuda_devices(void) { return is_open ? n_devices : 0; }
int hc_cuda_driver_version(void) { return version; }

static hc_status check_device(int device, hc_error *error) {
    if (device < 0 || device >= hc_cuda_devices())
        return hc_fail(error, HC_VALUE, "cuda: there is no device %d, the driver has %d", device, hc_cuda_devices());
    return HC_OK;
}

hc_status hc_cuda_describe(int device, hc_cuda_device *description, hc_error *error) {
    hc_status status = check_device(device, error);
    if (status != HC_OK)
        return status;
    int handle;
    size_t bytes = 0;
    *description = (hc_cuda_device){.major = 0};
    cu_result result = cu.get(&handle, device);
    if (result == 0)
        result = cu.name(description->name, sizeof description->name, handle);
    if (result == 0)
        result = cu.total(&bytes, handle);
    if (result == 0)
        result = cu.attribute(&description->major, COMPUTE_MAJOR, handle);
    if (result == 0)
        result = cu.attribute(&description->minor, COMPUTE_MINOR, handle);
    if (result == 0)
        result = cu.attribute(&description->multiprocessors, MULTIPROCESSORS, handle);
    description->bytes = (int64_t)bytes;
    return result ? fail_at(result, "asking for a device", error) : HC_OK;
}

/* The properties of a device that plans need, asked for once. */
static struct {
    atomic_int architecture, multiprocessors;
} known[HC_CUDA_MAX_DEVICES];

int hc_cuda_architecture(int device) {
    hc_cuda_device found;
    hc_error error;
    if (device < 0 || device >= HC_CUDA_MAX_DEVICES)
        return 0;
    if (!known[device].architecture && hc_cuda_describe(device, &found, &error) == HC_OK) {
        known[device].multiprocessors = found.multiprocessors;
        known[device].architecture = found.major * 10 + found.minor;
    }
    return known[device].architecture;
}

int hc_cuda_multiprocessors(int device) { return hc_cuda_architecture(device) ? known[device].multiprocessors : 0; }

/* The context of a device, made on first use; the mutex is held. */
static hc_status make_context(int device, hc_error *error) {
    if (contexts[device])
        return HC_OK;
    int handle, has_pools = 0;
    cu_result result = cu.get(&handle, device);
    if (result == 0)
        result = cu.attribute(&has_pools, HAS_MEMORY_POOLS, handle);
    if (result == 0 && !has_pools)
        return hc_fail(error, HC_UNSUPPORTED, "cuda: device %d has no memory pools, which heterocompute needs", device);
    /* Memory that is free stays in a pool, up to a share of the device's: the default pool gives all of it back at each wait, and
     * to map it again takes longer than most kernels. Other libraries have pools of their own. */
    const cu_pool properties = {.kind = PINNED, .place_kind = OF_DEVICE, .place = handle};
    size_t bytes = 0;
    void *pool = NULL;
    if (result == 0)
        result = cu.total(&bytes, handle);
    if (result == 0)
        result = cu.make_pool(&pool, &properties);
    uint64_t kept = bytes / KEPT_SHARE;
    if (result == 0)
        result = cu.set_pool(pool, RELEASE_THRESHOLD, &kept);
    pools[device] = pool;
    if (result == 0)
        result = cu.retain(&contexts[device], handle);
    has_context[device] = result == 0;
    return result ? fail_at(result, "opening the device", error) : HC_OK;
}

/* The device that this thread has entered, and how often: only the first push and the last pop reach the driver. */
static _Thread_local int entered, depth;

/* Makes the device current for this thread; `leave` gives back what was. */
static hc_status enter(int device, hc_error *error) {
    if (depth > 0 && entered == device) {
        depth++;
        return HC_OK;
    }
    HC_ASSERT(depth == 0);
    hc_status status = check_device(device, error);
    if (status != HC_OK)
        return status;
    if (!has_context[device]) {
        hc_mutex_lock(&mutex);
        status = make_context(device, error);
        hc_mutex_unlock(&mutex);
        if (status != HC_OK)
            return status;
    }
    const cu_result result = cu.push(contexts[device]);
    entered = device;
    depth = result == 0;
    return result ? fail_at(result, "entering the device", error) : HC_OK;
}

static hc_status leave(cu_result result, const char *what, hc_error *error) {
    void *context;
    if (--depth == 0)
        cu.pop(&context);
    return result ? fail_at(result, what, error) : HC_OK;
}

hc_status hc_cuda_enter(int device, hc_error *error) { return enter(device, error); }

void hc_cuda_leave(void) {
    hc_error error;
    leave(0, "", &error);
}

hc_status hc_cuda_allocate(int device, int64_t bytes, void *stream, void **address, hc_error *error) {
    cu_address made = 0;
    hc_status status = enter(device, error);
    if (status != HC_OK)
        return status;
    status = leave(cu.allocate(&made, (size_t)hc_max(bytes, 1), pools[device], stream), "allocating", error);
    *address = (void *)(uintptr_t)made;
    if (status == HC_MEMORY)
        return hc_fail(error, HC_MEMORY, "cuda: device %d has no %lld bytes of memory left", device, (long long)bytes);
    return status;
}

void hc_cuda_free(int device, void *address, void *stream) {
    hc_error error;
    if (enter(device, &error) == HC_OK)
        leave(cu.give_back((cu_address)(uintptr_t)address, stream), "freeing", &error);
}

hc_status hc_cuda_upload(int device, void *to, const void *from, int64_t bytes, void *stream, hc_error *error) {
    const hc_status status = bytes ? enter(device, error) : HC_OK;
    if (status != HC_OK || bytes == 0)
        return status;
    const cu_result result = cu.upload((cu_address)(uintptr_t)to, from, (size_t)bytes, stream);
    return leave(result ? result : cu.wait(stream), "copying to the device", error);
}

hc_status hc_cuda_download(int device, void *to, const void *from, int64_t bytes, void *stream, hc_error *error) {
    const hc_status status = bytes ? enter(device, error) : HC_OK;
    if (status != HC_OK || bytes == 0)
        return status;
    const cu_result result = cu.download(to, (cu_address)(uintptr_t)from, (size_t)bytes, stream);
    return leave(result ? result : cu.wait(stream), "copying from the device", error);
}

hc_status hc_cuda_move(int device, void *to, const void *from, int64_t bytes, void *stream, hc_error *error) {
    const hc_status status = bytes ? enter(device, error) : HC_OK;
    if (status != HC_OK || bytes == 0)
        return status;
    return leave(cu.move((cu_address)(uintptr_t)to, (cu_address)(uintptr_t)from, (size_t)bytes, stream),
                 "copying on the device", error);
}

hc_status hc_cuda_wait(int device, void *stream, hc_error *error) {
    const hc_status status = enter(device, error);
    return status == HC_OK ? leave(cu.wait(stream), "the work on the device", error) : status;
}

/* More words; the device is entered and the mutex held. They stay for the life of the process. */
static cu_result make_words(void) {
    void *made = NULL;
    int mode = RELAXED; /* else the driver allocates nothing while any stream is captured */
    cu.exchange_mode(&mode);
    const cu_result result = cu.allocate_host(&made, WORDS_BYTES, PORTABLE_AND_MAPPED);
    cu.exchange_mode(&mode);
    hc_cuda_word *words = made;
    for (int i = 0; result == 0 && i < WORDS_BYTES / WORD_BYTES; i++) {
        words[i].next = free_words;
        free_words = &words[i];
    }
    return result;
}

hc_status hc_cuda_lend_word(int device, uint32_t **word, hc_error *error) {
    const hc_status status = enter(device, error);
    *word = NULL;
    if (status != HC_OK)
        return status;
    hc_mutex_lock(&mutex);
    const cu_result result = free_words ? 0 : make_words();
    hc_cuda_word *taken = result == 0 ? free_words : NULL;
    if (taken)
        free_words = taken->next;
    hc_mutex_unlock(&mutex);
    if (taken) {
        taken->value = 0;
        *word = &taken->value;
    }
    return leave(result, "allocating memory of the host", error);
}

void hc_cuda_return_word(uint32_t *word) {
    if (!word)
        return;
    hc_cuda_word *given = (hc_cuda_word *)(void *)word;
    hc_mutex_lock(&mutex);
    given->next = free_words;
    free_words = given;
    hc_mutex_unlock(&mutex);
}

bool hc_cuda_is_captured(int device, void *stream) {
    hc_error error;
    int status = 0;
    if (enter(device, &error) != HC_OK)
        return false;
    const cu_result result = cu.capture(stream, &status);
    leave(0, "", &error);
    return result == 0 && status != 0;
}

hc_status hc_cuda_place(const void *address, int *device, hc_error *error) {
    if (!cu.pointer)
        return hc_fail(error, HC_UNSUPPORTED, "no CUDA driver is open");
    unsigned type = 0;
    const cu_address at = (cu_address)(uintptr_t)address;
    cu_result result = cu.pointer(&type, POINTER_MEMORY_TYPE, at);
    const bool needs_context = result == NO_CONTEXT; /* of any device: one is made only if this thread has none */
    if (needs_context) {
        const hc_status status = enter(0, error);
        if (status != HC_OK)
            return status;
        result = cu.pointer(&type, POINTER_MEMORY_TYPE, at);
    }
    if (result == 0 && type == MEMORY_OF_DEVICE)
        result = cu.pointer(device, POINTER_DEVICE, at);
    if (needs_context)
        leave(0, "", error);
    if (result != 0 || type != MEMORY_OF_DEVICE || *device < 0 || *device >= n_devices)
        return hc_fail(error, HC_VALUE, "is not in the memory of a CUDA device");
    return HC_OK;
}

/* The module of a name, loaded on first use; the device is entered and the mutex held. */
static cu_result find_module(int device, const char *name, void **module) {
    int i = 0;
    for (; i < MAX_MODULES - 1 && modules[device][i].name; i++)
        if (strcmp(modules[device][i].name, name) == 0) {
            *module = modules[device][i].module;
            return 0;
        }
    const void *data = brings_kernels ? name : NULL;
    for (int number = 0; !data && number < MAX_MODULES && images[number].name; number++)
        if (strcmp(images[number].name, name) == 0)
            data = images[number].image;
    const cu_result result = data ? cu.load(module, data) : NO_BINARY;
    if (result == 0) {
        modules[device][i].name = name;
        modules[device][i].module = *module;
    }
    return result;
}

static cu_result find_kernel(int device, const hc_cuda_step *step, void **function) {
    int i = 0;
    for (; i < MAX_KERNELS - 1 && kernels[device][i].kernel; i++)
        if (kernels[device][i].kernel == step->kernel)
            break;
    if (kernels[device][i].kernel != step->kernel) {
        void *module;
        int mode = RELAXED; /* else the driver loads nothing while any stream is captured */
        cu.exchange_mode(&mode);
        cu_result result = find_module(device, step->module, &module);
        if (result == 0)
            result = cu.function(function, module, step->kernel);
        cu.exchange_mode(&mode);
        if (result != 0)
            return result;
        kernels[device][i].kernel = step->kernel;
        kernels[device][i].function = *function;
        kernels[device][i].shared_bytes = PLAIN_SHARED_BYTES;
    }
    *function = kernels[device][i].function;
    if (step->shared_bytes > kernels[device][i].shared_bytes) {
        const cu_result result = cu.set_attribute(*function, MAX_DYNAMIC_SHARED_BYTES, (int)step->shared_bytes);
        if (result != 0)
            return result;
        kernels[device][i].shared_bytes = step->shared_bytes;
    }
    return 0;
}

hc_status hc_cuda_launch(int device, const hc_cuda_plan *plan, void *stream, hc_error *error) {
    const hc_status status = enter(device, error);
    if (status != HC_OK)
        return status;
    cu_result result = 0;
    const char *kernel = "a launch";
    for (int i = 0; i < plan->n && result == 0; i++) {
        const hc_cuda_step *step = &plan->step[i];
        void *function = NULL;
        size_t bytes = step->params_bytes;
        kernel = step->kernel;
        hc_mutex_lock(&mutex);
        result = find_kernel(device, step, &function);
        hc_mutex_unlock(&mutex);
        void *extra[] = {PARAMS_POINTER, (void *)(uintptr_t)&step->params, PARAMS_SIZE, &bytes, PARAMS_END};
        if (result == 0)
            result = cu.launch(function, step->grid[0], step->grid[1], step->grid[2], step->block[0], step->block[1],
                               step->block[2], step->shared_bytes, stream, NULL, extra);
    }
    return leave(result, kernel, error);
}
