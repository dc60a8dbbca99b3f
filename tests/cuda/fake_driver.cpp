// A driver of CUDA for tests: two devices whose memory is of this machine, and kernels that the host runs (csrc/cuda/host.h).
//
// All memory of the devices is one region that nobody may read or write between calls of the driver, so that code of the host
// that touches it ends with a segmentation fault. An allocation lies between bytes that must not change.
#include "cuda/hc_cuda.h"

#include <dlfcn.h>
#include <map>
#include <mutex>
#include <new>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace {

typedef unsigned long long address;
enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NO_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719, CAPTURED = 900 };
enum { GUARD = 256, N_DEVICES = 2 };
const size_t REGION = size_t(1) << 30;

struct allocation {
    size_t bytes;
    int device;
};

std::mutex mutex;
unsigned char *region;
std::map<size_t, allocation> live; // by offset
size_t used_bytes;
int launches, uploads, downloads, waits;
void *last_stream; // of a launch
std::string fault;
thread_local void *stack[16];
thread_local int depth;
int contexts[N_DEVICES];
decltype(&hc_cuda_host_launch) launch;
void (*say_allocations)(const uint64_t *ranges, uint32_t n); // of kernels that an interpreter runs, or NULL

size_t limit() {
    const char *text = getenv("FAKE_DRIVER_BYTES");
    return text ? strtoull(text, NULL, 10) : REGION;
}

// A stream that becomes part of a graph: nothing may be allocated, copied from the host or waited for.
bool is_captured() { return getenv("FAKE_DRIVER_CAPTURES") != NULL; }

bool start() {
    if (region)
        return true;
    void *kernels = dlopen(getenv("FAKE_DRIVER_KERNELS"), RTLD_NOW | RTLD_LOCAL);
    launch = (decltype(launch))(kernels ? dlsym(kernels, "hc_cuda_host_launch") : NULL);
    if (!launch)
        return false;
    say_allocations = (decltype(say_allocations))dlsym(kernels, "hc_host_allocations");
    void *made = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    region = made == MAP_FAILED ? NULL : (unsigned char *)made;
    return region != NULL;
}

struct unlocked { // for the time of a call
    unlocked() { mprotect(region, REGION, PROT_READ | PROT_WRITE); }
    ~unlocked() { mprotect(region, REGION, PROT_NONE); }
};

const allocation *find(address at, size_t bytes, size_t *offset) {
    if (!region || at < (address)region || at - (address)region >= REGION)
        return NULL;
    const size_t place = at - (address)region;
    auto next = live.upper_bound(place);
    if (next == live.begin())
        return NULL;
    --next;
    *offset = next->first;
    return place + bytes <= next->first + next->second.bytes ? &next->second : NULL;
}

bool is_guarded(size_t offset, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        if (region[offset - GUARD + i] != 0x5a || region[offset + bytes + i] != 0x5a)
            return false;
    return true;
}

} // namespace

extern "C" {

int hc_cuda_brings_kernels = 1;

int cuInit(unsigned) { return getenv("FAKE_DRIVER_FAILS") ? 999 : start() ? SUCCESS : OUT_OF_MEMORY; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = getenv("FAKE_DRIVER_EMPTY") ? 0 : N_DEVICES, SUCCESS; }
int cuDeviceGet(int *device, int number) { return *device = number, number < N_DEVICES ? SUCCESS : INVALID_VALUE; }
int cuDeviceGetName(char *name, int bytes, int) { return strncpy(name, "fake device", bytes), SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = limit(), SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
    const char *text = getenv("FAKE_DRIVER_ARCHITECTURE"); // such as 90
    const int architecture = text ? atoi(text) : 80;
    *value = attribute == 75 ? architecture / 10 : attribute == 76 ? architecture % 10 : attribute == 115;
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &contexts[device], SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { return depth < 16 ? stack[depth++] = context, SUCCESS : NO_CONTEXT; }
int cuCtxPopCurrent_v2(void **context) { return depth ? *context = stack[--depth], SUCCESS : NO_CONTEXT; }

int cuModuleLoadData(void **module, const void *image) {
    return *module = const_cast<void *>(image), SUCCESS; // the name of the module
}
int cuModuleGetFunction(void **function, void *, const char *name) {
    return *function = const_cast<char *>(name), SUCCESS;
}
int cuFuncSetAttribute(void *, int, int) { return SUCCESS; }

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                   unsigned threads_z, unsigned shared_bytes, void *stream, void **, void **extra) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!depth)
        return NO_CONTEXT;
    if (y > 65535 || z > 65535 || threads_x * threads_y * threads_z > 1024 || shared_bytes > 227 << 10)
        return INVALID_VALUE;
    const uint32_t grid[] = {x, y, z}, block[] = {threads_x, threads_y, threads_z};
    const size_t bytes = *(size_t *)extra[3];
    const unlocked now;
    launches++;
    last_stream = stream;
    if (say_allocations) {
        std::vector<uint64_t> ranges;
        for (const auto &[offset, one] : live) {
            ranges.push_back((uint64_t)(region + offset));
            ranges.push_back(one.bytes);
        }
        say_allocations(ranges.data(), (uint32_t)live.size());
    }
    const char *wrong =
        launch((char *)function, grid, block, shared_bytes, extra[1], (uint32_t)bytes, launches % 3);
    if (say_allocations)
        say_allocations(NULL, 0); // launches without this driver are of other memory
    if (wrong)
        fault = wrong;
    for (const auto &[offset, one] : live)
        if (!is_guarded(offset, one.bytes))
            fault = std::string((char *)function) + " writes beside an allocation";
    return fault.empty() ? SUCCESS : LAUNCH_FAILED;
}

int cuMemAllocAsync(address *made, size_t bytes, void *) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!depth)
        return NO_CONTEXT;
    if (is_captured())
        return CAPTURED;
    if (used_bytes + bytes > limit())
        return OUT_OF_MEMORY;
    const size_t whole = (bytes + 2 * GUARD + 511) / 256 * 256; // the device's addresses are multiples of 256
    size_t at = 0;
    for (const auto &[offset, one] : live) {
        if (offset - GUARD >= at + whole)
            break;
        at = (offset + one.bytes + GUARD + 255) / 256 * 256;
    }
    if (at + whole > REGION)
        return OUT_OF_MEMORY;
    const unlocked now;
    memset(region + at, 0x5a, GUARD);
    memset(region + at + GUARD, 0xa5, bytes);
    memset(region + at + GUARD + bytes, 0x5a, GUARD);
    live[at + GUARD] = {bytes, int((int *)stack[depth - 1] - contexts)};
    used_bytes += bytes;
    *made = (address)(region + at + GUARD);
    return SUCCESS;
}

int cuMemFreeAsync(address at, void *) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto found = live.find(at - (address)region);
    if (found == live.end())
        return INVALID_VALUE;
    used_bytes -= found->second.bytes;
    live.erase(found);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *) {
    const std::lock_guard<std::mutex> lock(mutex);
    size_t offset;
    if (is_captured())
        return CAPTURED;
    if (!find(to, bytes, &offset))
        return INVALID_VALUE;
    const unlocked now;
    uploads++;
    return memcpy((void *)to, from, bytes), SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *) {
    const std::lock_guard<std::mutex> lock(mutex);
    size_t offset;
    if (is_captured())
        return CAPTURED;
    if (!find(from, bytes, &offset))
        return INVALID_VALUE;
    const unlocked now;
    downloads++;
    return memcpy(to, (const void *)from, bytes), SUCCESS;
}

int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *) {
    const std::lock_guard<std::mutex> lock(mutex);
    size_t offset;
    if (!find(to, bytes, &offset) || !find(from, bytes, &offset) || (to < from + bytes && from < to + bytes))
        return INVALID_VALUE;
    const unlocked now;
    return memcpy((void *)to, (const void *)from, bytes), SUCCESS;
}

int cuStreamSynchronize(void *) {
    return is_captured() ? CAPTURED : (waits++, fault.empty() ? SUCCESS : LAUNCH_FAILED);
}
int cuStreamIsCapturing(void *, int *status) { return *status = is_captured(), SUCCESS; }

int cuPointerGetAttribute(void *value, int attribute, address at) {
    const std::lock_guard<std::mutex> lock(mutex);
    size_t offset;
    const allocation *found = find(at, 1, &offset);
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
            : result == CAPTURED       ? "operation not permitted when stream is capturing"
                                       : "unknown error";
    return SUCCESS;
}

// What a test asks.
size_t fake_driver_live_bytes(void) { return used_bytes; }
void *fake_driver_last_stream(void) { return last_stream; }
void fake_driver_counts(int counts[4]) {
    counts[0] = launches, counts[1] = uploads, counts[2] = downloads, counts[3] = waits;
}
}
