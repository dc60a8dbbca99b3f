/* Loads, stores and copies. Each address is aligned and inside of what it may touch: a parameter, the shared memory of the launch,
 * the depot of the thread, an allocation of the device. Between two barriers, no two threads touch a byte of shared memory that
 * one of them writes. */
#include "kernels.h"

#include <algorithm>

namespace ptx {
namespace {

/* Who touched a byte of shared memory since the last barrier. */
struct touched {
    uint32_t phase;          /* of this state */
    uint16_t writer, reader; /* a thread + 1, or 0, or MANY */
};
std::vector<touched> bytes;
uint32_t phase;

touched &state_of(uint32_t at) {
    touched &one = bytes[at];
    if (one.phase != phase)
        one = {phase, 0, 0};
    return one;
}

void writes_shared(const instruction &i, uint32_t writer, uint32_t address, uint32_t n) {
    for (uint32_t at = address; at < address + n; at++) {
        touched &one = state_of(at);
        if ((one.writer && one.writer != writer) || (one.reader && one.reader != writer))
            stop(i, "writes byte %u of shared memory, which another thread %s since the last barrier", at,
                 one.writer && one.writer != writer ? "wrote" : "read");
        one.writer = (uint16_t)writer;
    }
}

bool is_inside(uint64_t address, uint32_t n, uint64_t begin, uint64_t size) {
    return address >= begin && address - begin <= size && n <= size - (address - begin);
}

unsigned char *global_at(thread &t, const instruction &i, uint64_t address, uint32_t n, bool writes) {
    if (!allocations.empty()) {
        auto next = std::upper_bound(allocations.begin(), allocations.end(), address,
                                     [](uint64_t at, const allocation &one) { return at < one.begin; });
        const bool is_in = next != allocations.begin() && is_inside(address, n, next[-1].begin, next[-1].bytes);
        if (!is_in && (writes || !is_constant(t.home->home, address, n)))
            stop(i, "touches %u bytes at %llx, which no allocation holds", n, (unsigned long long)address);
    } else if (address < 1 << 16)
        stop(i, "touches %u bytes at %llx, which no allocation holds", n, (unsigned long long)address);
    return (unsigned char *)(uintptr_t)address;
}

unsigned char *local_at(thread &t, const instruction &i, uint64_t offset, uint32_t n) {
    if (!is_inside(offset, n, 0, t.home->local_bytes))
        stop(i, "touches %u bytes at %lld of %u bytes of local memory", n, (long long)offset, t.home->local_bytes);
    return (unsigned char *)t.local.data() + offset;
}

bool is_shared(uint64_t address) {
    return is_inside(address, 1, (uint64_t)(uintptr_t)hc_shared(), hc_host_running.shared_bytes);
}
bool is_local(const thread &t, uint64_t address) {
    return is_inside(address, 1, (uint64_t)(uintptr_t)t.local.data(), t.home->local_bytes);
}

unsigned char *locate(thread &t, const instruction &i, uint64_t address, uint32_t n, bool writes) {
    if (address % n)
        stop(i, "touches %u bytes at %llx, which is not aligned", n, (unsigned long long)address);
    space where = i.where;
    if (where == GENERIC && is_shared(address)) {
        where = SHARED;
        address -= (uint64_t)(uintptr_t)hc_shared();
    } else if (where == GENERIC && is_local(t, address)) {
        where = LOCAL;
        address += LOCAL_BASE - (uint64_t)(uintptr_t)t.local.data();
    }
    note_access(t, i, where == GENERIC ? GLOBAL : where, address, n);
    switch (where) {
    case SHARED: {
        unsigned char *found = shared_at(i, (uint32_t)address, n);
        if (writes)
            writes_shared(i, t.number + 1, (uint32_t)address, n);
        else
            reads_shared(i, t.number + 1, (uint32_t)address, n);
        return found;
    }
    case LOCAL:
        return local_at(t, i, address - LOCAL_BASE, n);
    case PARAM:
        if (writes || !is_inside(address, n, PARAM_BASE, t.home->params_bytes))
            stop(i, "touches %u bytes at %lld of %u bytes of parameters", n, (long long)(address - PARAM_BASE),
                 t.home->params_bytes);
        return (unsigned char *)t.params + (address - PARAM_BASE);
    default:
        return global_at(t, i, address, n, writes);
    }
}

/* An address is a register of 64 bits, of shared memory of 32. */
uint64_t address_in(thread &t, const instruction &i, int n) {
    const uint64_t base = read(t, i, n);
    const uint64_t at = base + (uint64_t)i.offset;
    return i.where == SHARED ? (uint32_t)at : at;
}

} // namespace

unsigned char *shared_at(const instruction &i, uint32_t address, uint32_t n) {
    if (!is_inside(address, n, 0, hc_host_running.shared_bytes))
        stop(i, "touches %u bytes at %u of %zu bytes of shared memory", n, address, hc_host_running.shared_bytes);
    return hc_shared() + address;
}

void reads_shared(const instruction &i, uint32_t reader, uint32_t address, uint32_t n) {
    for (uint32_t at = address; at < address + n; at++) {
        touched &one = state_of(at);
        if (one.writer && one.writer != reader)
            stop(i, "reads byte %u of shared memory, which another thread wrote since the last barrier", at);
        one.reader = one.reader && one.reader != reader ? (uint16_t)MANY : (uint16_t)reader;
    }
}

void clear_shared() {
    bytes.resize(std::max(bytes.size(), hc_host_running.shared_bytes));
    phase++;
}
void pass_barrier() { phase++; }

void load(thread &t, const instruction &i) {
    const uint32_t each = (uint32_t)bytes_of(i.what);
    const unsigned char *from = locate(t, i, address_in(t, i, i.count), each * i.count, false);
    const int shift = 64 - 8 * (int)each;
    for (int k = 0; k < i.count; k++) {
        uint64_t bits = 0;
        memcpy(&bits, from + (uint32_t)k * each, each);
        if (is_signed(i.what) && each < i.width) { /* to the width of the register */
            bits = (uint64_t)((int64_t)(bits << shift) >> shift);
            bits = bits << (64 - 8 * i.width) >> (64 - 8 * i.width);
        }
        write(t, i, k, bits);
    }
}

void store(thread &t, const instruction &i) {
    const uint32_t each = (uint32_t)bytes_of(i.what);
    unsigned char *to = locate(t, i, address_in(t, i, 0), each * i.count, true), bytes_of_all[32];
    for (int k = 0; k < i.count; k++) {
        const uint64_t bits = read(t, i, 1 + k);
        memcpy(bytes_of_all + (uint32_t)k * each, &bits, each);
    }
    if (each * i.count == 16 && is_shared((uint64_t)(uintptr_t)to))
        hc_store_16(to, bytes_of_all); /* which matrix units see after a fence */
    else
        memcpy(to, bytes_of_all, each * i.count);
}

void move(thread &t, const instruction &i) {
    const uint64_t bits = read(t, i, 1);
    write(t, i, 0, i.what == PRED ? bits != 0 : i.width == 8 ? bits : bits & (((uint64_t)1 << 8 * i.width) - 1));
}

void select(thread &t, const instruction &i) {
    const uint64_t bits = read(t, i, read(t, i, 3) ? 1 : 2);
    write(t, i, 0, i.width == 8 ? bits : bits & (((uint64_t)1 << 8 * i.width) - 1));
}

/* The first part is the lowest. */
void pack(thread &t, const instruction &i) {
    const uint32_t n = i.n_slots - 1, shift = 8 * (uint32_t)bytes_of(i.what) / n;
    uint64_t bits = 0;
    for (uint32_t k = 0; k < n; k++)
        bits |= read(t, i, (int)k + 1) << shift * k;
    write(t, i, 0, bits);
}

void unpack(thread &t, const instruction &i) {
    const uint32_t n = i.n_slots - 1, width = 8 * (uint32_t)bytes_of(i.what) / n;
    const uint64_t bits = read(t, i, (int)n);
    for (uint32_t k = 0; k < n; k++)
        write(t, i, (int)k, bits >> width * k & (((uint64_t)1 << width) - 1));
}

void to_generic(thread &t, const instruction &i) {
    const uint64_t at = read(t, i, 1);
    write(t, i, 0,
          i.where == SHARED  ? (uint64_t)(uintptr_t)hc_shared() + at
          : i.where == LOCAL ? (uint64_t)(uintptr_t)t.local.data() + (at - LOCAL_BASE)
                             : at);
}

void from_generic(thread &t, const instruction &i) {
    const uint64_t at = read(t, i, 1);
    if (i.where == SHARED ? !is_shared(at) : i.where == LOCAL ? !is_local(t, at) : is_shared(at) || is_local(t, at))
        stop(i, "is given the address of another space");
    write(t, i, 0,
          i.where == SHARED  ? at - (uint64_t)(uintptr_t)hc_shared()
          : i.where == LOCAL ? at - (uint64_t)(uintptr_t)t.local.data() + LOCAL_BASE
                             : at);
}

/* Atomic operations of threads do not race with each other: those of shared memory count as reads of many. */
static uint32_t *word_at(thread &t, const instruction &i) {
    const uint64_t address = address_in(t, i, 1);
    if (i.where != SHARED)
        return (uint32_t *)locate(t, i, address, 4, true);
    if (address % 4)
        stop(i, "touches 4 bytes at %llx, which is not aligned", (unsigned long long)address);
    unsigned char *found = shared_at(i, (uint32_t)address, 4);
    reads_shared(i, MANY, (uint32_t)address, 4);
    return (uint32_t *)found;
}
void atomic_max(thread &t, const instruction &i) {
    const uint32_t value = get<uint32_t>(t, i, 2);
    uint32_t *at = word_at(t, i), before = *at;
    *at = std::max(before, value);
    put<uint32_t>(t, i, 0, before);
}
void atomic_or(thread &t, const instruction &i) {
    const uint32_t value = get<uint32_t>(t, i, 2);
    uint32_t *at = word_at(t, i), before = *at;
    *at = before | value;
    put<uint32_t>(t, i, 0, before);
}

/* cp.async [shared], [global], 16 and the bytes that are read; the others are zeros. */
void copy_async(thread &t, const instruction &i) {
    if (i.n_slots < 3 || i.n_slots > 4 || read(t, i, 2) != 16 || i.offset)
        stop(i, "unknown form");
    const uint32_t to = get<uint32_t>(t, i, 0), there = i.n_slots == 4 ? get<uint32_t>(t, i, 3) : 16;
    const uint64_t from = read(t, i, 1);
    if (there != 0 && there != 16)
        stop(i, "copies %u bytes, expected 0 or 16", there);
    if (to % 16 || from % 16)
        stop(i, "copies 16 bytes that are not aligned");
    unsigned char *target = shared_at(i, to, 16);
    note_access(t, i, SHARED, to, 16);
    if (there) {
        global_at(t, i, from, 16, false);
        note_access(t, i, GLOBAL, from, 16);
    }
    writes_shared(i, t.number + 1, to, 16);
    t.copies.push_back({to, t.groups});
    hc_copy_16_or_zeros(target, (const void *)(uintptr_t)from, there == 16);
}

void copy_commit(thread &t, const instruction &) {
    t.groups++;
    hc_copy_commit();
}

void copy_wait(thread &t, const instruction &i) {
    const int pending = get<int>(t, i, 0);
    size_t kept = 0;
    for (const copied &one : t.copies)
        if (one.group >= t.groups - pending)
            t.copies[kept++] = one;
        else
            writes_shared(i, t.number + 1, one.at, 16); /* at any time until now */
    t.copies.resize(kept);
    hc_host_copy_wait(pending);
}

} // namespace ptx
