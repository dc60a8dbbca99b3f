// A driver of CUDA for tests: two devices whose memory is of this machine, and kernels that the host runs (device.h).
//
// The memory of a device is a region that only launches and copies of that device may touch, so that other code ends with a
// segmentation fault. An allocation lies between bytes that must not change. The rules of the real driver hold: a current context,
// modules and functions of that context, kernels in the module that has them, shared memory that was asked for, limits of sizes.
// Work of a stream ends when the host waits for it: memory is freed and used by no other stream before.
#include "run.h"

#include <deque>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace {

typedef unsigned long long address;
enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NO_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400 };
enum { NOT_FOUND = 500, LOST = 700, LAUNCH_FAILED = 719, CAPTURED = 900 };
enum {
    GUARD = 256,
    N_DEVICES = 2,
    RELAXED = 2,
    PLAIN_SHARED = 48 << 10,
    MOST_SHARED = 163 << 10,
    MOST_SHARED_90 = 227 << 10,
    MOST_PARAMS = 4096
};
const size_t REGION = size_t(1) << 30;

struct allocation {
    size_t bytes;
    int device;
    std::set<void *> users; // streams with work that the host has not waited for
};
struct module {
    std::string name;
    int device;
};
struct function {
    const module *of;
    std::string name;
    unsigned shared;
};

std::mutex mutex;
unsigned char *regions[N_DEVICES];
std::map<address, allocation> live;
std::deque<module> modules;
std::deque<function> functions;
std::map<address, size_t> host_memory;      // that kernels may write
std::set<void *> destroyed;                 // streams
size_t used_bytes;
int launches, uploads, downloads, waits;
void *last_stream; // of a launch
std::string fault;
thread_local void *stack[16];
thread_local int depth, mode;
int contexts[N_DEVICES], pools[N_DEVICES];
decltype(&hc_cuda_host_launch) launch;
decltype(&hc_cuda_host_is_in) is_in;
void (*say_allocations)(const uint64_t *ranges, uint32_t n); // of kernels that an interpreter runs, or NULL

size_t limit() {
    const char *text = getenv("FAKE_DRIVER_BYTES");
    return text ? strtoull(text, NULL, 10) : REGION;
}

// A stream that becomes part of a graph: nothing may be allocated, freed, copied from the host or waited for.
bool is_captured() { return getenv("FAKE_DRIVER_CAPTURES") != NULL; }

// A kernel wrote where it must not: the device answers nothing else from then on, but frees memory here for the tests after.
bool is_lost() { return getenv("FAKE_DRIVER_LOST") != NULL; }

// The device of the current context, or -1.
int current() { return depth ? int((int *)stack[depth - 1] - contexts) : -1; }

void *same(void *stream) { return stream ? stream : (void *)1; } // both are the legacy stream

bool start() {
    if (regions[0])
        return true;
    void *kernels = dlopen(getenv("FAKE_DRIVER_KERNELS"), RTLD_NOW | RTLD_LOCAL);
    launch = (decltype(launch))(kernels ? dlsym(kernels, "hc_cuda_host_launch") : NULL);
    is_in = (decltype(is_in))(kernels ? dlsym(kernels, "hc_cuda_host_is_in") : NULL);
    if (!launch || !is_in)
        return false;
    say_allocations = (decltype(say_allocations))dlsym(kernels, "hc_host_allocations");
    for (unsigned char *&region : regions) {
        void *made = mmap(NULL, 6 * REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED)
            return false;
        /* The low halves of its addresses are 1 to 2 GiB, so a small number next to junk in padding is not one of them. */
        region = (unsigned char *)(((address)made + 4 * REGION - 1) / (4 * REGION) * (4 * REGION) + REGION);
    }
    return true;
}

struct unlocked { // for the time of a call
    int device;
    explicit unlocked(int of) : device(of) { mprotect(regions[device], REGION, PROT_READ | PROT_WRITE); }
    ~unlocked() { mprotect(regions[device], REGION, PROT_NONE); }
};

int architecture() {
    const char *text = getenv("FAKE_DRIVER_ARCHITECTURE"); // such as 90
    return text ? atoi(text) : 80;
}

int device_of(address at) {
    for (int i = 0; i < N_DEVICES; i++)
        if (regions[i] && at - (address)regions[i] < REGION)
            return i;
    return -1;
}

allocation *find(address at, size_t bytes) {
    auto next = live.upper_bound(at);
    if (next == live.begin())
        return NULL;
    --next;
    return at + bytes <= next->first + next->second.bytes ? &next->second : NULL;
}

void use(allocation *one, void *stream, const char *what) {
    if (destroyed.count(stream))
        fault = std::string(what) + " is on a stream that was destroyed";
    for (void *other : one->users)
        if (other != same(stream))
            fault = std::string(what) + " uses memory that another stream uses, which nothing waited for";
    one->users.insert(same(stream));
}

bool is_guarded(address at, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        if (((unsigned char *)at)[(ptrdiff_t)i - GUARD] != 0x5a || ((unsigned char *)at)[bytes + i] != 0x5a)
            return false;
    return true;
}

// Addresses among the parameters of a kernel are of memory of its device that was not freed.
void check_params(const function &kernel, const unsigned char *params, size_t bytes, void *stream) {
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        address word;
        memcpy(&word, params + i, 8);
        if (device_of(word) < 0)
            continue;
        if (allocation *one = find(word, 0); !one)
            fault = kernel.name + " is given memory that nobody holds";
        else if (one->device != kernel.of->device)
            fault = kernel.name + " is given memory of another device";
        else
            use(one, stream, kernel.name.c_str());
    }
}

} // namespace

extern "C" {

int hc_cuda_brings_kernels = 1;

int cuInit(unsigned) { return getenv("FAKE_DRIVER_FAILS") ? 999 : start() ? SUCCESS : OUT_OF_MEMORY; }
int cuDriverGetVersion(int *version) {
    const char *text = getenv("FAKE_DRIVER_VERSION");
    return *version = text ? atoi(text) : 13000, SUCCESS;
}
int cuDeviceGetCount(int *count) { return *count = getenv("FAKE_DRIVER_EMPTY") ? 0 : N_DEVICES, SUCCESS; }
int cuDeviceGet(int *device, int number) { return *device = number, number < N_DEVICES ? SUCCESS : INVALID_VALUE; }
int cuDeviceGetName(char *name, int bytes, int) { return strncpy(name, "fake device", bytes), SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = limit(), SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
    *value = attribute == 75   ? architecture() / 10
             : attribute == 76 ? architecture() % 10
             : attribute == 16 ? 108
                               : attribute == 115;
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &contexts[device], SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { return depth < 16 ? stack[depth++] = context, SUCCESS : NO_CONTEXT; }
int cuCtxPopCurrent_v2(void **context) { return depth ? *context = stack[--depth], SUCCESS : NO_CONTEXT; }
int cuThreadExchangeStreamCaptureMode(int *other) { return std::swap(mode, *other), SUCCESS; }

int cuModuleLoadData(void **made, const void *image) { // the name of the module
    const std::lock_guard<std::mutex> lock(mutex);
    const std::string name = (const char *)image;
    if (!depth)
        return NO_CONTEXT;
    if (is_captured() && mode != RELAXED)
        return CAPTURED;
    if (architecture() != 90 && name.size() > 4 && name.compare(name.size() - 4, 4, "_90a") == 0)
        return NO_BINARY;
    modules.push_back({name, current()});
    return *made = &modules.back(), SUCCESS;
}
int cuModuleGetFunction(void **made, void *of, const char *name) {
    const std::lock_guard<std::mutex> lock(mutex);
    const module *from = (module *)of;
    if (!depth)
        return NO_CONTEXT;
    if (from->device != current())
        return INVALID_HANDLE;
    if (!is_in(name, from->name.c_str()))
        return NOT_FOUND;
    functions.push_back({from, name, PLAIN_SHARED});
    return *made = &functions.back(), SUCCESS;
}
int cuFuncSetAttribute(void *of, int attribute, int value) {
    const std::lock_guard<std::mutex> lock(mutex);
    function *kernel = (function *)of;
    if (!depth)
        return NO_CONTEXT;
    if (kernel->of->device != current())
        return INVALID_HANDLE;
    if (attribute != 8 || value < 0 || value > (architecture() == 90 ? MOST_SHARED_90 : MOST_SHARED))
        return INVALID_VALUE;
    return kernel->shared = value, SUCCESS;
}

int cuLaunchKernel(void *of, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                   unsigned threads_z, unsigned shared_bytes, void *stream, void **params, void **extra) {
    const std::lock_guard<std::mutex> lock(mutex);
    const function *kernel = (function *)of;
    if (!depth)
        return NO_CONTEXT;
    if (is_lost())
        return LOST;
    if (kernel->of->device != current())
        return INVALID_HANDLE;
    if (!x || !y || !z || x > 0x7fffffff || y > 65535 || z > 65535 || !threads_x || !threads_y || !threads_z ||
        threads_z > 64 || threads_x * threads_y * threads_z > 1024 || shared_bytes > kernel->shared)
        return INVALID_VALUE;
    if (params || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4])
        return INVALID_VALUE;
    const uint32_t grid[] = {x, y, z}, block[] = {threads_x, threads_y, threads_z};
    const size_t bytes = *(size_t *)extra[3];
    if (bytes > MOST_PARAMS)
        return INVALID_VALUE;
    check_params(*kernel, (unsigned char *)extra[1], bytes, stream);
    const unlocked now(current());
    launches++;
    last_stream = stream;
    if (say_allocations) {
        std::map<address, size_t> sizes = host_memory;
        for (const auto &[at, one] : live)
            if (one.device == now.device)
                sizes[at] = one.bytes;
        std::vector<uint64_t> ranges; // ascending
        for (const auto &[at, size] : sizes) {
            ranges.push_back(at);
            ranges.push_back(size);
        }
        say_allocations(ranges.data(), (uint32_t)(ranges.size() / 2));
    }
    const char *wrong =
        launch(kernel->name.c_str(), grid, block, shared_bytes, extra[1], (uint32_t)bytes, launches % 3);
    if (say_allocations)
        say_allocations(NULL, 0); // launches without this driver are of other memory
    if (wrong)
        fault = wrong;
    for (const auto &[at, one] : live)
        if (one.device == now.device && !is_guarded(at, one.bytes))
            fault = kernel->name + " writes beside an allocation";
    return fault.empty() ? SUCCESS : LAUNCH_FAILED;
}

int cuMemPoolCreate(void **pool, const int *properties) {
    if (properties[0] != 1 || properties[1] != 0 || properties[2] != 1 || properties[3] >= N_DEVICES)
        return INVALID_VALUE;
    return *pool = &pools[properties[3]], SUCCESS;
}
int cuMemPoolSetAttribute(void *, int attribute, void *) { return attribute == 4 ? SUCCESS : INVALID_VALUE; }

int cuMemAllocFromPoolAsync(address *made, size_t bytes, void *pool, void *) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!depth)
        return NO_CONTEXT;
    if (is_lost())
        return LOST;
    if (pool != &pools[current()])
        return INVALID_VALUE;
    if (is_captured())
        return CAPTURED;
    if (used_bytes + bytes > limit())
        return OUT_OF_MEMORY;
    const size_t whole = (bytes + 2 * GUARD + 511) / 256 * 256; // the device's addresses are multiples of 256
    const address begin = (address)regions[current()];
    address at = begin;
    for (const auto &[other, one] : live) {
        if (one.device != current())
            continue;
        if (other - GUARD >= at + whole)
            break;
        at = (other + one.bytes + GUARD + 255) / 256 * 256;
    }
    if (at + whole > begin + REGION)
        return OUT_OF_MEMORY;
    const unlocked now(current());
    memset((void *)at, 0x5a, GUARD);
    memset((void *)(at + GUARD), 0xa5, bytes);
    memset((void *)(at + GUARD + bytes), 0x5a, GUARD);
    live[at + GUARD] = {bytes, current(), {}};
    used_bytes += bytes;
    *made = at + GUARD;
    return SUCCESS;
}

int cuMemFreeAsync(address at, void *stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto found = live.find(at);
    if (!depth)
        return NO_CONTEXT;
    if (found == live.end() || found->second.device != current())
        return INVALID_VALUE;
    use(&found->second, stream, "cuMemFreeAsync");
    used_bytes -= found->second.bytes;
    live.erase(found);
    return SUCCESS;
}

int cuMemHostAlloc(void **made, size_t bytes, unsigned flags) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!depth)
        return NO_CONTEXT;
    if (is_captured() && mode != RELAXED)
        return CAPTURED;
    if (flags != 3 || posix_memalign(made, 4096, bytes))
        return INVALID_VALUE;
    memset(*made, 0x5a, bytes);
    host_memory[(address)*made] = bytes;
    return SUCCESS;
}

static int copy(void *to, const void *from, size_t bytes, void *stream, int *count) {
    allocation *given = count != &uploads ? find((address)from, bytes) : NULL;
    allocation *taken = count != &downloads ? find((address)to, bytes) : NULL;
    if (!depth)
        return NO_CONTEXT;
    if (is_lost())
        return LOST;
    if (count && is_captured())
        return CAPTURED;
    if ((!given && count != &uploads) || (!taken && count != &downloads))
        return INVALID_VALUE;
    if ((given && given->device != current()) || (taken && taken->device != current()))
        return INVALID_VALUE; // there is no access from device to device
    for (allocation *one : {given, taken})
        if (one)
            use(one, stream, "a copy");
    const unlocked now(current());
    if (count)
        ++*count;
    return memcpy(to, from, bytes), SUCCESS;
}

int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    return copy((void *)to, from, bytes, stream, &uploads);
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    return copy(to, (const void *)from, bytes, stream, &downloads);
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (to < from + bytes && from < to + bytes)
        return INVALID_VALUE;
    return copy((void *)to, (const void *)from, bytes, stream, NULL);
}

int cuStreamSynchronize(void *stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!depth)
        return NO_CONTEXT;
    if (is_lost())
        return LOST;
    if (is_captured())
        return CAPTURED;
    for (auto &[at, one] : live)
        one.users.erase(same(stream));
    waits++;
    return fault.empty() ? SUCCESS : LAUNCH_FAILED;
}
int cuStreamIsCapturing(void *, int *status) { return *status = is_captured(), depth ? SUCCESS : NO_CONTEXT; }

int cuPointerGetAttribute(void *value, int attribute, address at) {
    const std::lock_guard<std::mutex> lock(mutex);
    const allocation *found = find(at, 1);
    if (!depth)
        return NO_CONTEXT;
    if (!found)
        return INVALID_VALUE;
    if (attribute == 2)
        return *(unsigned *)value = 2, SUCCESS;
    return attribute == 9 ? *(int *)value = found->device, SUCCESS : INVALID_VALUE;
}

int cuGetErrorString(int result, const char **text) {
    const std::lock_guard<std::mutex> lock(mutex);
    *text = result == OUT_OF_MEMORY    ? "out of memory"
            : result == INVALID_VALUE  ? "invalid argument"
            : result == LAUNCH_FAILED  ? (fault.empty() ? "launch failed" : fault.c_str())
            : result == NO_CONTEXT     ? "invalid device context"
            : result == NO_BINARY      ? "no kernel image is available for execution on the device"
            : result == INVALID_HANDLE ? "invalid resource handle"
            : result == NOT_FOUND      ? "named symbol not found"
            : result == LOST           ? "an illegal memory access was encountered"
            : result == CAPTURED       ? "operation not permitted when stream is capturing"
                                       : "unknown error";
    return SUCCESS;
}

// What a test asks and says.
const char *fake_driver_fault(void) { return fault.c_str(); }
void fake_driver_destroy_stream(void *stream) { destroyed.insert(stream); }
void fake_driver_create_stream(void *stream) { destroyed.erase(stream); }
size_t fake_driver_live_bytes(void) { return used_bytes; }
void *fake_driver_last_stream(void) { return last_stream; }
void fake_driver_counts(int counts[4]) {
    counts[0] = launches, counts[1] = uploads, counts[2] = downloads, counts[3] = waits;
}
}
