/* Instructions of threads together: jumps, barriers, shuffles, matrix instructions. The functions of host.cpp compute them; here,
 * lanes of an instruction with .aligned must arrive at the same one. */
#include "kernels.h"

#include <algorithm>

namespace ptx {

void jump(thread &t, const instruction &i) {
    t.next = t.home->code.data() + i.target;
    if (++t.jumps > 1 << 28)
        stop(i, "jumps without an end");
}

namespace {

enum { WARP = 32 };

/* Before a collective of host.cpp, where the lanes wait for each other. */
void align(thread &t, const instruction &i) {
    warp_state &self = warps[t.number / WARP];
    const uint32_t lanes = std::min<uint32_t>(WARP, block_threads - t.number / WARP * WARP);
    if (self.arrived == 0)
        self.at = &i;
    else if (self.at != &i)
        stop(i, "is reached by lanes whose warp is at line %u (%s)", self.at->line, self.at->opcode);
    if (++self.arrived == lanes) {
        self.arrived = 0;
        meet_traffic(t.number / WARP);
    }
}

void same_address(hc_host_lanes *lanes) { (void)lanes; /* align has compared */ }
/* Where host.cpp does not wait. */
void meet(thread &t, const instruction &i) {
    unsigned char in = 0, out;
    align(t, i);
    hc_host_collective(same_address, i.opcode, &in, 1, &out, 1);
}

void end(thread &t, const instruction &) { t.next = NULL; }
void trap(thread &, const instruction &i) { stop(i, "is reached"); }

void barrier(thread &t, const instruction &i) {
    if (read(t, i, 0) != 0)
        stop(i, "unknown form");
    align(t, i);
    if (++at_barrier == block_threads) {
        at_barrier = 0;
        pass_barrier();
    }
    hc_barrier();
}

/* d | p, a, mask of lanes, 31: all lanes of the warp are one segment; all take part. */
void shuffle_xor(thread &t, const instruction &i) {
    const uint32_t value = get<uint32_t>(t, i, 2), mask = get<uint32_t>(t, i, 3);
    if (get<uint32_t>(t, i, 4) != 31 || get<uint32_t>(t, i, 5) != 0xffffffff || mask > 31)
        stop(i, "unknown form");
    put<uint32_t>(t, i, 0, hc_shuffle_xor(value, (int)mask));
    put<bool>(t, i, 1, true);
}

void load_matrix(thread &t, const instruction &i) {
    const uint32_t at = get<uint32_t>(t, i, 4) + (uint32_t)i.offset;
    if (at % 16)
        stop(i, "loads a row at %u, which is not aligned", at);
    const unsigned char *from = shared_at(i, at, 16);
    note_access(t, i, SHARED, at, 16);
    align(t, i);
    reads_shared(i, MANY, at, 16);
    uint32_t to[4];
    hc_load_matrix_x4(to, from);
    for (int k = 0; k < 4; k++)
        put<uint32_t>(t, i, k, to[k]);
}

template <typename T, int n> struct values {
    T at[n];
    values(thread &t, const instruction &i, int first) {
        for (int k = 0; k < n; k++)
            at[k] = get<T>(t, i, first + k);
    }
};
template <typename T> void put_sums(thread &t, const instruction &i, const T c[4]) {
    for (int k = 0; k < 4; k++)
        put<T>(t, i, k, c[k]);
}

/* d = a b + c; the fragments stand in the order of the ISA. */
template <bool a_is_signed, bool b_is_signed> void multiply_bytes(thread &t, const instruction &i) {
    values<uint32_t, 4> a(t, i, 4);
    values<uint32_t, 2> b(t, i, 8);
    values<int32_t, 4> c(t, i, 10);
    align(t, i);
    hc_mma_bytes(c.at, a.at, b.at, a_is_signed, b_is_signed);
    put_sums(t, i, c.at);
}

void multiply_bfloat16(thread &t, const instruction &i) {
    values<uint32_t, 4> a(t, i, 4);
    values<uint32_t, 2> b(t, i, 8);
    values<float, 4> c(t, i, 10);
    align(t, i);
    hc_mma_bf16(c.at, a.at, b.at);
    put_sums(t, i, c.at);
}

void multiply_sparse(thread &t, const instruction &i) {
    values<uint32_t, 4> a(t, i, 4), b(t, i, 8);
    values<int32_t, 4> c(t, i, 12);
    const uint32_t places = get<uint32_t>(t, i, 16);
    if (get<uint32_t>(t, i, 17) != 0)
        stop(i, "unknown form");
    align(t, i);
    hc_mma_sparse_s8(c.at, a.at, b.at, places);
    put_sums(t, i, c.at);
}

/* Products of a warpgroup: their registers are neither read nor written until the wait. */

void fence_shared(thread &, const instruction &) { hc_fence_shared(); }

void fence_registers(thread &t, const instruction &i) {
    meet(t, i);
    hc_wgmma_fence();
}

void commit_products(thread &t, const instruction &i) {
    meet(t, i);
    t.product_groups++;
    hc_wgmma_commit();
}

/* Rows of 128 or 64 bytes, in atoms of eight (wgmma.h). One thread of the warpgroup says so for all. */
void reads_operands(const thread &t, const instruction &i, const product &one) {
    if (t.number % 128 != 0)
        return;
    const auto reads = [&i](uint64_t descriptor, uint32_t rows, uint32_t bytes) {
        const uint32_t begin = (uint32_t)(descriptor & 0x3fff) << 4, width = descriptor >> 62 == 2 ? 64 : 128;
        const uint32_t pitch = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t piece = 0; piece < bytes; piece += 16) {
                const uint32_t plain = begin + row / 8 * pitch + row % 8 * width + piece;
                const uint32_t at = plain ^ (plain >> 7 & (width / 16 - 1)) << 4;
                shared_at(i, at, 16);
                reads_shared(i, MANY, at, 16);
            }
    };
    reads(one.a, 64, one.a_bytes);
    reads(one.b, one.columns, one.b_bytes);
}

/* d, a, b, (places, selector,) whether it adds */
template <int columns, bool is_sparse> void multiply_warpgroup(thread &t, const instruction &i) {
    const int n = columns / 2, last = is_sparse ? n + 4 : n + 2;
    const product one = {read(t, i, n), read(t, i, n + 1), columns, t.product_groups, 32, is_sparse ? 64 : 32};
    const bool adds = read(t, i, last);
    if (is_sparse && (read(t, i, n + 3) != 0 || !adds))
        stop(i, "unknown form");
    if (!t.accumulators) {
        t.accumulators = i.slot;
        t.n_sums = n;
        for (int k = 0; k < n; k++) {
            t.sums[k] = adds ? get<int32_t>(t, i, k) : 0;
            t.known[i.slot[k]] = IN_FLIGHT;
        }
    } else if (t.n_sums != n || !std::equal(i.slot, i.slot + n, t.accumulators))
        stop(i, "multiplies into other registers before it waited");
    t.products.push_back(one);
    align(t, i);
    if constexpr (is_sparse)
        hc_host_wgmma_sparse_s8(t.sums, columns, one.a, one.b, get<uint32_t>(t, i, n + 2));
    else
        hc_host_wgmma_s8(t.sums, columns, one.a, one.b, adds);
    reads_operands(t, i, one);
}

/* The sums are there when no product is left. */
void wait_for_products(thread &t, const instruction &i) {
    const int pending = get<int>(t, i, 0);
    meet(t, i);
    size_t ended = 0;
    while (ended < t.products.size() && t.products[ended].group < t.product_groups - pending)
        reads_operands(t, i, t.products[ended++]); /* at any time until now */
    t.products.erase(t.products.begin(), t.products.begin() + (ptrdiff_t)ended);
    hc_host_wgmma_wait(pending);
    if (!t.accumulators || !t.products.empty())
        return;
    for (uint32_t k = 0; k < t.n_sums; k++) {
        t.r[t.accumulators[k]] = (uint32_t)t.sums[k];
        t.known[t.accumulators[k]] = KNOWN;
    }
    t.accumulators = NULL;
}

} // namespace

void add_warp(opcodes &all) {
    all["bra"] = all["bra.uni"] = {jump, 0, NONE};
    all["ret"] = {end, 0, NONE};
    all["trap"] = {trap, 0, NONE};
    all["bar.sync"] = {barrier, 1, NONE};
    all["shfl.sync.bfly.b32"] = {shuffle_xor, 6, NONE};
    all["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {load_matrix, 5, NONE};
    const std::string bytes = "mma.sync.aligned.m16n8k32.row.col.s32.";
    all[bytes + "s8.s8.s32"] = {multiply_bytes<true, true>, 14, NONE};
    all[bytes + "s8.u8.s32"] = {multiply_bytes<true, false>, 14, NONE};
    all[bytes + "u8.s8.s32"] = {multiply_bytes<false, true>, 14, NONE};
    all[bytes + "u8.u8.s32"] = {multiply_bytes<false, false>, 14, NONE};
    all["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {multiply_bfloat16, 14, NONE};
    all["mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32"] = {multiply_sparse, 18, NONE};
    all["fence.proxy.async.shared::cta"] = {fence_shared, 0, NONE};
    all["wgmma.fence.sync.aligned"] = {fence_registers, 0, NONE};
    all["wgmma.commit_group.sync.aligned"] = {commit_products, 0, NONE};
    all["wgmma.wait_group.sync.aligned"] = {wait_for_products, 1, NONE};
    all["wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"] = {multiply_warpgroup<64, false>, 35, NONE};
    all["wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8"] = {multiply_warpgroup<128, false>, 67, NONE};
    all["wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8"] = {multiply_warpgroup<256, false>, 131, NONE};
    all["wgmma.mma_async.sp.sync.aligned.m64n64k64.s32.s8.s8"] = {multiply_warpgroup<64, true>, 37, NONE};
    all["wgmma.mma_async.sp.sync.aligned.m64n128k64.s32.s8.s8"] = {multiply_warpgroup<128, true>, 69, NONE};
    all["wgmma.mma_async.sp.sync.aligned.m64n192k64.s32.s8.s8"] = {multiply_warpgroup<192, true>, 101, NONE};
}

} // namespace ptx
