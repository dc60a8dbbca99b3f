/* Blocks in turn, threads as fibres: device.h says what for. A fault ends the launch with a sentence. */
#include "run.h"

#include "cuda/matmul/wgmma.h" /* and device.h */

#include <algorithm>
#include <mutex>
#include <random>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HC_LEAVE(saved, stack, bytes) __sanitizer_start_switch_fiber(saved, stack, bytes)
#define HC_ARRIVE(saved) __sanitizer_finish_switch_fiber(saved, NULL, NULL)
#define HC_FORGET(stack, bytes) __asan_unpoison_memory_region(stack, bytes)
#else
#define HC_LEAVE(saved, stack, bytes) ((void)(saved), (void)(stack), (void)(bytes))
#define HC_ARRIVE(saved) ((void)(saved))
#define HC_FORGET(stack, bytes) ((void)(stack), (void)(bytes))
#endif

hc_dim3 threadIdx, blockIdx, blockDim, gridDim;
hc_host_launch hc_host_running;

namespace {

enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 4096, WARP = HC_WARP };
enum { JUNK = 0xa5, GUARD = 0x5a, UNARRIVED = 0xcd };

struct copy {
    void *to;
    const void *from;
    int group;
};

/* The product of a warpgroup, computed when a thread waits for its group. */
struct product {
    int32_t *c;
    int columns;
    uint64_t a, b;
    bool adds;
    int group;
    bool is_sparse;
    uint32_t places[4]; /* of a 2:4 pattern: of two rows, then of the same ones' second 32 columns */
};

/* 16 bytes of shared memory. Writers are copies and hc_store_16; readers are ldmatrix, and matrix units from a product's begin
 * to its wait. Epochs are those of the block's barriers. */
enum { VISIBLE, IN_FLIGHT, ARRIVED, FENCED }; /* to matrix units */
struct piece {
    int state = VISIBLE;
    int written = -1, read = -1;     /* epochs */
    unsigned writer = 0, reader = 0; /* a thread, a warp */
    int products = 0;                /* that read it now */
};

enum waiting { RUNS, AT_BARRIER, AT_COLLECTIVE, ENDED };

struct fibre {
    ucontext_t context;
    char *stack;
    hc_dim3 index;
    waiting at;
    std::vector<copy> copies;
    int groups;                   /* committed */
    std::vector<size_t> unfenced; /* pieces that matrix units cannot see yet */
    bool is_fenced;               /* registers, for products of a warpgroup */
    std::vector<product> products;
    int product_groups;  /* committed */
    uint64_t operands;   /* of all products so far */
    int32_t before[128]; /* accumulators before the products at hand */
    void *fake_stack;
};

struct warp {
    hc_host_lanes lanes;
    hc_host_collective_fn *what;
    const char *name;
    int arrived;
};

struct entry {
    const char *name, *file;
    size_t params_bytes;
    unsigned threads;
    hc_host_kernel_fn *run;
};

std::vector<entry> &kernels() {
    static std::vector<entry> all;
    return all;
}

std::mutex mutex; /* one launch at a time */
std::vector<fibre> fibres;
std::vector<warp> warps;
std::vector<char *> stacks; /* kept from launch to launch */
std::vector<unsigned char> shared;
size_t shared_bytes;
std::vector<piece> pieces; /* of shared memory */
std::vector<size_t> fenced;
int epoch;
unsigned current;
ucontext_t scheduler;
const void *scheduler_stack;
size_t scheduler_stack_bytes;
const entry *running;
const void *running_params;
char sentence[512];

__attribute__((format(printf, 1, 2))) void fault(const char *format, ...) {
    if (sentence[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    const int n = snprintf(sentence, sizeof sentence, "%s, block %u %u, thread %u: ", running->name, blockIdx.x,
                           blockIdx.y, current);
    vsnprintf(sentence + n, sizeof sentence - (size_t)n, format, arguments);
    va_end(arguments);
}

void yield() {
    fibre &self = fibres[current];
    HC_LEAVE(&self.fake_stack, scheduler_stack, scheduler_stack_bytes);
    swapcontext(&self.context, &scheduler);
    HC_ARRIVE(self.fake_stack);
}

void start() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_stack_bytes);
#endif
    running->run(running_params);
    fibre &self = fibres[current];
    if (!self.copies.empty())
        fault("ends with copies that nothing waited for");
    if (!self.products.empty())
        fault("ends with products that nothing waited for");
    self.at = ENDED;
    HC_LEAVE(NULL, scheduler_stack, scheduler_stack_bytes);
    swapcontext(&self.context, &scheduler);
}

void resume(unsigned thread) {
    fibre &self = fibres[thread];
    current = thread;
    threadIdx = self.index;
    void *saved = NULL;
    HC_LEAVE(&saved, self.stack, STACK_BYTES);
    swapcontext(&scheduler, &self.context);
    HC_ARRIVE(saved);
}

void prepare(unsigned n) {
    while (stacks.size() < n) {
        void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack == MAP_FAILED)
            abort();
        stacks.push_back((char *)stack);
    }
    fibres.resize(n);
    warps.assign((n + WARP - 1) / WARP, warp{});
    for (unsigned i = 0; i < n; i++) {
        fibre &self = fibres[i];
        self.stack = stacks[i];
        if (self.at != ENDED) /* of a launch with a fault: its frames still stand on the stack */
            HC_FORGET(self.stack, STACK_BYTES);
        self.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        self.at = RUNS;
        self.copies.clear();
        self.groups = 0;
        self.unfenced.clear();
        self.is_fenced = false;
        self.products.clear();
        self.product_groups = 0;
        self.operands = 0;
        self.fake_stack = NULL;
        getcontext(&self.context);
        self.context.uc_stack.ss_sp = self.stack;
        self.context.uc_stack.ss_size = STACK_BYTES;
        self.context.uc_link = NULL;
        makecontext(&self.context, start, 0);
    }
    shared.assign(2 * GUARD_BYTES + shared_bytes, GUARD);
    memset(shared.data() + GUARD_BYTES, JUNK, shared_bytes);
    pieces.assign(shared_bytes / 16, piece{});
    fenced.clear();
    epoch = 0;
}

/* The piece at an address, or NULL: what lies beyond shared memory is found by its guards. */
piece *piece_at(const void *at, size_t *number) {
    *number = (size_t)((const unsigned char *)at - shared.data() - GUARD_BYTES) / 16;
    return *number < pieces.size() ? &pieces[*number] : NULL;
}

void begin_write(const void *to, int state) {
    size_t number;
    piece *one = piece_at(to, &number);
    if (!one)
        return;
    if (one->state == IN_FLIGHT)
        fault("writes where a copy has yet to arrive");
    if (one->products > 0)
        fault("changes operands of products that run");
    if (one->read == epoch && one->reader != current / WARP)
        fault("overwrites what another warp read since the last barrier");
    if (one->written == epoch && one->writer != current)
        fault("overwrites what another thread wrote since the last barrier");
    one->state = state;
    one->written = epoch;
    one->writer = current;
    if (state == ARRIVED)
        fibres[current].unfenced.push_back(number);
}

void note_read(piece *one) {
    if (one->state == IN_FLIGHT)
        fault("reads where a copy has yet to arrive");
    if (one->written == epoch)
        fault("reads what was written since the last barrier");
    one->reader = one->read == epoch && one->reader != current / WARP ? ~0u : current / WARP;
    one->read = epoch;
}

void check_guards() {
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (shared[i] != GUARD || shared[GUARD_BYTES + shared_bytes + i] != GUARD)
            fault("writes beyond its %zu bytes of shared memory", shared_bytes);
}

void run_block(const std::vector<unsigned> &order) {
    const unsigned n = (unsigned)order.size();
    prepare(n);
    hc_host_running.blocks++;
    for (;;) {
        unsigned ran = 0, at_barrier = 0, ended = 0, at_collective = 0;
        for (unsigned i : order)
            if (fibres[i].at == RUNS) {
                resume(i);
                ran++;
                if (sentence[0])
                    return;
            }
        for (const fibre &one : fibres) {
            at_barrier += one.at == AT_BARRIER;
            at_collective += one.at == AT_COLLECTIVE;
            ended += one.at == ENDED;
        }
        if (ended == n)
            break;
        if (ran > 0 && at_barrier < n)
            continue;
        if (at_barrier < n) {
            fault("%u threads wait at a barrier, %u at a collective of their warp, and %u have ended", at_barrier,
                  at_collective, ended);
            return;
        }
        for (fibre &one : fibres)
            one.at = RUNS;
        for (size_t number : fenced)
            if (pieces[number].state == FENCED)
                pieces[number].state = VISIBLE;
        fenced.clear();
        epoch++;
    }
    check_guards();
    for (unsigned i = 0; i < n; i++)
        if (fibres[i].operands != fibres[i / 128 * 128].operands)
            fault("multiplies other operands than thread %u of its warpgroup", i / 128 * 128);
}

} // namespace

hc_host_kernel::hc_host_kernel(const char *name, const char *file, size_t params_bytes, unsigned threads,
                               hc_host_kernel_fn *run) {
    kernels().push_back({name, file, params_bytes, threads, run});
}

void hc_host_stop(const char *wrong) {
    fault("%s", wrong);
    for (;;)
        yield();
}

unsigned char *hc_shared() { return shared.data() + GUARD_BYTES; }

void hc_barrier() {
    fibres[current].at = AT_BARRIER;
    yield();
}

void hc_load_16(float to[4], const void *from) {
    if ((uintptr_t)from % 16)
        fault("loads 16 bytes that are not aligned");
    memcpy(to, from, 16);
}

void hc_load_16_once(uint32_t to[4], const void *from) {
    float same[4];
    hc_load_16(same, from);
    memcpy(to, same, 16);
}

float hc_half_value(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const float magnitude = exponent == 31  ? fraction ? NAN : INFINITY
                            : exponent == 0 ? ldexpf((float)fraction, -24)
                                            : ldexpf((float)(fraction + 1024), exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

void hc_copy_16(void *to, const void *from) {
    fibre &self = fibres[current];
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16)
        fault("copies 16 bytes that are not aligned");
    begin_write(to, IN_FLIGHT);
    self.copies.push_back({to, from, self.groups});
    memset(to, UNARRIVED, 16);
}

void hc_copy_16_or_zeros(void *to, const void *from, bool is_valid) {
    alignas(16) static const unsigned char zeros[16] = {0};
    hc_copy_16(to, is_valid ? from : zeros);
}

void hc_copy_commit() { fibres[current].groups++; }

void hc_host_copy_wait(int pending) {
    fibre &self = fibres[current];
    size_t kept = 0;
    for (const copy &one : self.copies) {
        if (one.group >= self.groups - pending) {
            self.copies[kept++] = one;
            continue;
        }
        memcpy(one.to, one.from, 16);
        size_t number;
        if (piece *at = piece_at(one.to, &number)) {
            at->state = ARRIVED;
            at->written = epoch;
            self.unfenced.push_back(number);
        }
    }
    self.copies.resize(kept);
}

void hc_host_collective(hc_host_collective_fn *what, const char *name, const void *in, size_t in_bytes, void *out,
                        size_t out_bytes) {
    const unsigned lane = current % WARP, first = current - lane;
    warp &self = warps[current / WARP];
    memcpy(self.lanes.in[lane], in, in_bytes);
    if (self.arrived == 0) {
        self.what = what;
        self.name = name;
    } else if (self.what != what) {
        fault("arrives at %s while its warp is at %s", name, self.name);
        yield();
    }
    if (++self.arrived == WARP) {
        what(&self.lanes);
        self.arrived = 0;
        for (unsigned i = first; i < first + WARP; i++)
            fibres[i].at = RUNS;
    } else {
        fibres[current].at = AT_COLLECTIVE;
        yield();
    }
    memcpy(out, self.lanes.out[lane], out_bytes);
}

static void load_matrix(hc_host_lanes *lanes) {
    for (int matrix = 0; matrix < 4; matrix++)
        for (int row = 0; row < 8; row++) {
            const unsigned char *from;
            memcpy(&from, lanes->in[matrix * 8 + row], sizeof from);
            for (int pair = 0; pair < 4; pair++)
                memcpy(lanes->out[row * 4 + pair] + matrix * 4, from + pair * 4, 4);
        }
}

void hc_load_matrix_x4(uint32_t to[4], const void *from) {
    if ((uintptr_t)from % 16)
        fault("loads a row of a matrix that is not aligned");
    size_t number;
    if (piece *one = piece_at(from, &number))
        note_read(one);
    hc_host_collective(load_matrix, "ldmatrix", &from, sizeof from, to, 16);
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k32": byte i of register r of a lane is row lane / 4 (+ 8 for odd r), column
 * 4 (lane % 4) + i (+ 16 for r >= 2) of a, and column lane / 4, row 4 (lane % 4) + i (+ 16 for r = 1) of b. */
static void multiply_bytes(hc_host_lanes *lanes) {
    int a[16][32], b[32][8];
    for (int lane = 0; lane < 32; lane++) {
        const unsigned char *in = lanes->in[lane];
        const bool a_is_signed = in[40], b_is_signed = in[41];
        if (a_is_signed != (bool)lanes->in[0][40] || b_is_signed != (bool)lanes->in[0][41])
            fault("multiplies with signs that differ among lanes");
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 4; i++)
                a[lane / 4 + r % 2 * 8][lane % 4 * 4 + i + r / 2 * 16] =
                    a_is_signed ? (int8_t)in[16 + r * 4 + i] : in[16 + r * 4 + i];
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 4; i++)
                b[lane % 4 * 4 + i + r * 16][lane / 4] = b_is_signed ? (int8_t)in[32 + r * 4 + i] : in[32 + r * 4 + i];
    }
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++) {
            int32_t sum;
            memcpy(&sum, lanes->in[lane] + r * 4, 4);
            int64_t total = sum;
            for (int k = 0; k < 32; k++)
                total += a[lane / 4 + r / 2 * 8][k] * b[k][lane % 4 * 2 + r % 2];
            if (total != (int32_t)total)
                fault("adds products beyond 32 bits");
            sum = (int32_t)total;
            memcpy(lanes->out[lane] + r * 4, &sum, 4);
        }
}

void hc_mma_bytes(int32_t c[4], const uint32_t a[4], const uint32_t b[2], bool a_is_signed, bool b_is_signed) {
    unsigned char in[42];
    memcpy(in, c, 16);
    memcpy(in + 16, a, 16);
    memcpy(in + 32, b, 8);
    in[40] = a_is_signed;
    in[41] = b_is_signed;
    hc_host_collective(multiply_bytes, "mma", in, sizeof in, c, 16);
}

void hc_mma_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2]) { hc_mma_bytes(c, a, b, true, true); }

/* PTX ISA, "Matrix Fragments for sparse mma.m16n8k64": byte i of register r of a is kept value 4 (lane % 4) + i (+ 16 for
 * r >= 2) of row lane / 4 (+ 8 for odd r), and of b column lane / 4, row 4 (lane % 4) + i + 16 r. */
static void multiply_sparse_bytes(hc_host_lanes *lanes) {
    int a[16][64] = {}, b[64][8], kept[16][32];
    for (int lane = 0; lane < 32; lane++) {
        const int8_t *in = (const int8_t *)lanes->in[lane] + 16;
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 4; i++) {
                kept[lane / 4 + r % 2 * 8][lane % 4 * 4 + i + r / 2 * 16] = in[r * 4 + i];
                b[lane % 4 * 4 + i + r * 16][lane / 4] = in[16 + r * 4 + i];
            }
    }
    for (int lane = 0; lane < 32; lane++) {
        uint32_t places;
        memcpy(&places, lanes->in[lane] + 48, 4);
        const int row = lane / 4 + lane % 2 * 8, half = lane / 2 % 2;
        for (int block = 0; block < 8; block++) {
            const int first = places >> (block * 4) & 3, second = places >> (block * 4 + 2) & 3;
            if (first >= second)
                fault("names the places %d and %d of a block of four, expected ascending ones", first, second);
            const int *two = kept[row] + half * 16 + block * 2;
            a[row][half * 32 + block * 4 + first] = two[0];
            a[row][half * 32 + block * 4 + second] = two[1];
        }
    }
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++) {
            int32_t sum;
            memcpy(&sum, lanes->in[lane] + r * 4, 4);
            int64_t total = sum;
            for (int k = 0; k < 64; k++)
                total += a[lane / 4 + r / 2 * 8][k] * b[k][lane % 4 * 2 + r % 2];
            if (total != (int32_t)total)
                fault("adds products beyond 32 bits");
            sum = (int32_t)total;
            memcpy(lanes->out[lane] + r * 4, &sum, 4);
        }
}

void hc_mma_sparse_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[4], uint32_t places) {
    unsigned char in[52];
    memcpy(in, c, 16);
    memcpy(in + 16, a, 16);
    memcpy(in + 32, b, 16);
    memcpy(in + 48, &places, 4);
    hc_host_collective(multiply_sparse_bytes, "sparse mma", in, sizeof in, c, 16);
}

static double bfloat16_at(const unsigned char *from) {
    uint32_t bits = (uint32_t)(from[0] | from[1] << 8) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16": half i of register r is row lane / 4 (+ 8 for odd r), column 2 (lane % 4) + i
 * (+ 8 for r >= 2) of a, and column lane / 4, row 2 (lane % 4) + i (+ 8 for r = 1) of b. */
static void multiply_bfloat16(hc_host_lanes *lanes) {
    double a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const unsigned char *in = lanes->in[lane] + 16;
        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < 4; r++)
                a[lane / 4 + r % 2 * 8][lane % 4 * 2 + i + r / 2 * 8] = bfloat16_at(in + r * 4 + i * 2);
            for (int r = 0; r < 2; r++)
                b[lane % 4 * 2 + i + r * 8][lane / 4] = bfloat16_at(in + 16 + r * 4 + i * 2);
        }
    }
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++) {
            float sum;
            memcpy(&sum, lanes->in[lane] + r * 4, 4);
            double total = sum;
            for (int k = 0; k < 16; k++)
                total += a[lane / 4 + r / 2 * 8][k] * b[k][lane % 4 * 2 + r % 2];
            sum = (float)total;
            memcpy(lanes->out[lane] + r * 4, &sum, 4);
        }
}

void hc_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    unsigned char in[40];
    memcpy(in, c, 16);
    memcpy(in + 16, a, 16);
    memcpy(in + 32, b, 8);
    hc_host_collective(multiply_bfloat16, "mma of bfloat16", in, sizeof in, c, 16);
}

/* Products of a warpgroup, whose threads name the same operands, product by product. */

uint32_t hc_shared_address(const void *at) { return (uint32_t)((const unsigned char *)at - hc_shared()); }

void hc_fence_shared() {
    fibre &self = fibres[current];
    for (size_t number : self.unfenced)
        if (pieces[number].state == ARRIVED) {
            pieces[number].state = FENCED;
            fenced.push_back(number);
        }
    self.unfenced.clear();
}

void hc_wgmma_fence() { fibres[current].is_fenced = true; }

void hc_store_16(void *to, const void *from) {
    if ((uintptr_t)to % 16)
        fault("stores 16 bytes that are not aligned");
    begin_write(to, ARRIVED);
    memcpy(to, from, 16);
}

static void agree(hc_host_lanes *lanes) {
    for (int lane = 1; lane < 32; lane++)
        if (memcmp(lanes->in[lane], lanes->in[0], 17) != 0)
            fault("multiplies by descriptors that differ among lanes");
}

/* Bytes of a row that a product reads. */
static int a_bytes(const product &) { return 32; }
static int b_bytes(const product &one) { return one.is_sparse ? 64 : 32; }

/* Where a piece of 16 bytes of a row of an operand lies, or NULL. PTX ISA, "Matrix-descriptor": rows of 128 or 64 swizzled bytes,
 * eight of them an atom on a multiple of its size. */
static const unsigned char *operand_at(uint64_t descriptor, int row, int piece) {
    const uint32_t begin = (uint32_t)(descriptor & 0x3fff) << 4, pitch = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    const uint32_t layout = (uint32_t)(descriptor >> 62), width = layout == 2 ? 64 : 128;
    if ((layout != 1 && layout != 2) || descriptor >> 46 & 0xffff || begin % (8 * width) >= width)
        fault("multiplies by a descriptor of another layout");
    uint32_t at = begin + row / 8 * pitch + row % 8 * width + piece * 16;
    at ^= (at >> 7 & (width / 16 - 1)) << 4;
    if (at + 16 <= shared_bytes)
        return hc_shared() + at;
    fault("multiplies what lies beyond its %zu bytes of shared memory", shared_bytes);
    return NULL;
}

static void read_operand(uint64_t descriptor, int row, int bytes, int8_t *to) {
    for (int piece = 0; piece < bytes / 16; piece++)
        if (const unsigned char *from = operand_at(descriptor, row, piece))
            memcpy(to + piece * 16, from, 16);
}

/* What a warp's product reads, from its begin to its wait. */
static void hold(const product &one, int change) {
    size_t number;
    for (int row = 0; row < 64 + one.columns; row++)
        for (int i = 0; i < (row < 64 ? a_bytes(one) : b_bytes(one)) / 16; i++) {
            piece *at = piece_at(row < 64 ? operand_at(one.a, row, i) : operand_at(one.b, row - 64, i), &number);
            if (!at)
                continue;
            if (change > 0 && at->state == ARRIVED)
                fault("multiplies shared memory that no fence followed");
            if (change > 0 && at->state == FENCED)
                fault("multiplies shared memory that no barrier followed");
            note_read(at);
            at->products += change;
        }
}

static void begin_product(const product &one) {
    fibre &self = fibres[current];
    self.operands = (self.operands * 31 + one.a) * 31 + one.b;
    if (!self.is_fenced)
        fault("multiplies before a fence of its registers");
    if (self.products.empty())
        memcpy(self.before, one.c, one.columns / 2 * sizeof *one.c);
    else if (self.products[0].c != one.c)
        fault("multiplies into other registers before it waited");
    self.products.push_back(one);
    if (current % WARP == 0)
        hold(one, 1);
    memset(one.c, UNARRIVED, one.columns / 2 * sizeof *one.c);
}

void hc_host_wgmma_s8(int32_t *c, int columns, uint64_t a, uint64_t b, bool adds) {
    unsigned char in[17], out;
    memcpy(in, &a, 8);
    memcpy(in + 8, &b, 8);
    in[16] = adds;
    hc_host_collective(agree, "wgmma", in, sizeof in, &out, 1);
    begin_product({c, columns, a, b, adds, fibres[current].product_groups, false, {}});
}

/* PTX ISA, "Sparse wgmma with integer type": as of mma.sp, lane i of a warp has the places of row i / 4 + 8 (i % 2), columns
 * 32 (i / 2 % 2) on. A thread needs those of the four lanes of its rows. */
static void agree_sparse(hc_host_lanes *lanes) {
    agree(lanes);
    for (int lane = 0; lane < 32; lane++) {
        uint32_t places;
        memcpy(&places, lanes->in[lane] + 17, 4);
        for (int block = 0; block < 8; block++) {
            const int first = places >> (block * 4) & 3, second = places >> (block * 4 + 2) & 3;
            if (first >= second)
                fault("names the places %d and %d of a block of four, expected ascending ones", first, second);
        }
        for (int i = 0; i < 4; i++)
            memcpy(lanes->out[lane / 4 * 4 + i] + lane % 4 * 4, &places, 4);
    }
}

void hc_host_wgmma_sparse_s8(int32_t *c, int columns, uint64_t a, uint64_t b, uint32_t places) {
    product one = {c, columns, a, b, true, fibres[current].product_groups, true, {}};
    unsigned char in[21] = {};
    memcpy(in, &a, 8);
    memcpy(in + 8, &b, 8);
    memcpy(in + 17, &places, 4);
    hc_host_collective(agree_sparse, "sparse wgmma", in, sizeof in, one.places, sizeof one.places);
    begin_product(one);
}

void hc_wgmma_commit() { fibres[current].product_groups++; }

/* A row of 64 values of which 32 are there. */
static void spread(const int8_t *kept, const uint32_t places[2], int8_t to[64]) {
    memset(to, 0, 64);
    for (int i = 0; i < 32; i++)
        to[i / 2 * 4 + (places[i / 16] >> i % 16 * 2 & 3)] = kept[i];
}

static void finish(const product &one, int32_t *sums) {
    const int lane = current % 32, warp = current % 128 / 32, columns_of_k = b_bytes(one);
    int8_t a[2][64], b[64];
    for (int i = 0; i < 2; i++) {
        read_operand(one.a, warp * 16 + lane / 4 + i * 8, a_bytes(one), one.is_sparse ? b : a[i]);
        const uint32_t places[2] = {one.places[i], one.places[2 + i]};
        if (one.is_sparse)
            spread(b, places, a[i]);
    }
    for (int column = 0; column < one.columns / 4; column++) { /* this thread's */
        read_operand(one.b, column / 2 * 8 + lane % 4 * 2 + column % 2, columns_of_k, b);
        for (int i = 0; i < 2; i++) {
            int32_t *sum = &sums[column / 2 * 4 + i * 2 + column % 2];
            int64_t total = one.adds ? *sum : 0;
            for (int k = 0; k < columns_of_k; k++)
                total += a[i][k] * b[k];
            if (total != (int32_t)total)
                fault("adds products beyond 32 bits");
            *sum = (int32_t)total;
        }
    }
}

static void arrive(hc_host_lanes *) {}

void hc_host_wgmma_wait(int pending) {
    fibre &self = fibres[current];
    size_t ended = 0;
    while (ended < self.products.size() && self.products[ended].group < self.product_groups - pending) {
        finish(self.products[ended], self.before);
        if (current % WARP == 0)
            hold(self.products[ended], -1);
        ended++;
    }
    if (ended > 0 && ended == self.products.size()) {
        memcpy(self.products[0].c, self.before, self.products[0].columns / 2 * sizeof *self.before);
        self.is_fenced = false;
    }
    self.products.erase(self.products.begin(), self.products.begin() + (ptrdiff_t)ended);
    unsigned char in = 0, out;
    hc_host_collective(arrive, "wait for wgmma", &in, 1, &out, 1);
}

static void exchange_xor(hc_host_lanes *lanes) {
    for (int lane = 0; lane < 32; lane++) {
        int mask;
        memcpy(&mask, lanes->in[lane] + 4, 4);
        memcpy(lanes->out[lane], lanes->in[lane ^ mask], 4);
    }
}

uint32_t hc_shuffle_xor(uint32_t value, int mask) {
    const uint32_t in[2] = {value, (uint32_t)mask};
    hc_host_collective(exchange_xor, "shuffle", in, sizeof in, &value, 4);
    return value;
}

bool hc_cuda_host_is_in(const char *kernel, const char *module) {
    for (const entry &one : kernels())
        if (strcmp(one.name, kernel) == 0) {
            const char *slash = strrchr(one.file, '/'), *stem = slash ? slash + 1 : one.file;
            return strncmp(stem, module, strlen(module)) == 0 && strcmp(stem + strlen(module), ".cu") == 0;
        }
    return false;
}

const char *hc_cuda_host_launch(const char *kernel, const uint32_t grid[3], const uint32_t block[3], uint32_t bytes,
                                const void *params, uint32_t params_bytes, uint32_t order) {
    const std::lock_guard<std::mutex> lock(mutex);
    sentence[0] = 0;
    running = NULL;
    for (const entry &one : kernels())
        if (strcmp(one.name, kernel) == 0)
            running = &one;
    const unsigned n = block[0] * block[1] * block[2], blocks = grid[0] * grid[1] * grid[2];
    if (!running)
        snprintf(sentence, sizeof sentence, "there is no kernel %s", kernel);
    else if (params_bytes != running->params_bytes)
        snprintf(sentence, sizeof sentence, "%s: %u bytes of parameters, expected %zu", kernel, params_bytes,
                 running->params_bytes);
    else if (n == 0 || n > running->threads || blocks == 0)
        snprintf(sentence, sizeof sentence, "%s: %u blocks of %u threads, expected at least 1, at most %u threads",
                 kernel, blocks, n, running->threads);
    if (sentence[0])
        return sentence;
    running_params = params;
    shared_bytes = bytes;
    hc_host_running.kernel = running->name;
    hc_host_running.shared_bytes = bytes;
    hc_host_running.order = order;
    blockDim = {block[0], block[1], block[2]};
    gridDim = {grid[0], grid[1], grid[2]};
    std::vector<unsigned> threads(n), turns(blocks);
    for (unsigned i = 0; i < n; i++)
        threads[i] = order == 1 ? n - 1 - i : i;
    for (unsigned i = 0; i < blocks; i++)
        turns[i] = order == 1 ? blocks - 1 - i : i;
    if (order > 1) {
        std::mt19937 random(order);
        std::shuffle(threads.begin(), threads.end(), random);
        std::shuffle(turns.begin(), turns.end(), random);
    }
    for (unsigned i : turns) {
        blockIdx = {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
        run_block(threads);
        if (sentence[0])
            return sentence;
    }
    return NULL;
}

const char *hc_cuda_host_run(const hc_cuda_plan *plan, uint32_t order) {
    for (int i = 0; i < plan->n; i++) {
        const hc_cuda_step *step = &plan->step[i];
        const char *fault = hc_cuda_host_launch(step->kernel, step->grid, step->block, step->shared_bytes,
                                                &step->params, step->params_bytes, order);
        if (fault)
            return fault;
    }
    return NULL;
}

const char *hc_cuda_host_step(const hc_cuda_plan *plan, int number) {
    return number < plan->n ? plan->step[number].kernel : NULL;
}
