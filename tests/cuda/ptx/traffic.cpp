/* Requests of warps, and the parts into which a device splits them: an access of the 32 lanes of a warp is a request.
 *
 *   shared   32 banks of 4 bytes. Lanes of a request go together that have 128 bytes in all: the warp for up to 4 bytes a lane, each
 *            half of it for 8, each quarter for 16 and for the rows of ldmatrix. Such a part needs a wavefront for each of the
 *            different words that lie in one bank; at the least, one.
 *   global   sectors of 32 bytes; at the least, as many as hold the bytes.
 *
 * The n-th accesses that lanes make by an instruction between two places where their warp meets are one request. */
#include "kernels.h"

#include <algorithm>
#include <bit>

namespace ptx {

bool counts_traffic;

namespace {

enum { WARP = 32, BANKS = 32, WORD = 4, SECTOR = 32 };

struct request {
    uint64_t at[WARP];
    uint32_t lanes; /* a bit each */
};

/* An instruction, as a warp executes it. */
struct site {
    uint32_t bytes; /* of a lane */
    uint32_t n[WARP];
    std::vector<request> requests;
};

typedef std::pair<const instruction *, space> place;
std::map<std::pair<uint32_t, place>, site> waiting; /* by warp */
std::map<place, traffic> totals;

uint32_t wavefronts_of(const uint64_t *at, uint32_t lanes, uint32_t bytes) {
    std::vector<uint64_t> words[BANKS];
    size_t most = 0;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const uint64_t first = at[std::countr_zero(left)];
        for (uint64_t word = first / WORD; word <= (first + bytes - 1) / WORD; word++) {
            std::vector<uint64_t> &bank = words[word % BANKS];
            if (std::find(bank.begin(), bank.end(), word) == bank.end())
                bank.push_back(word);
            most = std::max(most, bank.size());
        }
    }
    return (uint32_t)most;
}

void add_shared(const request &one, uint32_t bytes, traffic &all) {
    const uint32_t lanes = bytes <= WORD ? WARP : BANKS * WORD / bytes;
    for (uint32_t first = 0; first < WARP; first += lanes) {
        const uint32_t part = lanes == WARP ? one.lanes : one.lanes & ((1u << lanes) - 1) << first;
        if (!part)
            continue;
        all.units += wavefronts_of(one.at, part, bytes);
        all.least++;
    }
}

void add_global(const request &one, uint32_t bytes, traffic &all) {
    std::vector<uint64_t> sectors, found;
    for (uint32_t left = one.lanes; left; left &= left - 1) {
        const uint64_t first = one.at[std::countr_zero(left)];
        found.push_back(first); /* lanes that overlap have one address */
        for (uint64_t sector = first / SECTOR; sector <= (first + bytes - 1) / SECTOR; sector++)
            sectors.push_back(sector);
    }
    for (std::vector<uint64_t> *list : {&sectors, &found}) {
        std::sort(list->begin(), list->end());
        list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    all.units += sectors.size();
    all.least += (found.size() * bytes + SECTOR - 1) / SECTOR;
}

void end(const place &where, site &one) {
    traffic &all = totals[where];
    for (const request &each : one.requests) {
        if (!each.lanes)
            continue;
        all.requests++;
        if (where.second == SHARED)
            add_shared(each, one.bytes, all);
        else
            add_global(each, one.bytes, all);
    }
    one = site{one.bytes, {}, {}};
}

} // namespace

void note_access(const thread &t, const instruction &i, space where, uint64_t address, uint32_t bytes) {
    if (!counts_traffic || (where != SHARED && where != GLOBAL))
        return;
    site &one = waiting[{t.number / WARP, {&i, where}}];
    const uint32_t lane = t.number % WARP, n = one.n[lane]++;
    one.bytes = bytes;
    if (n >= one.requests.size())
        one.requests.resize(n + 1, request{});
    one.requests[n].at[lane] = address;
    one.requests[n].lanes |= 1u << lane;
}

void meet_traffic(uint32_t warp) {
    if (!counts_traffic)
        return;
    for (auto at = waiting.lower_bound({warp, {}}); at != waiting.end() && at->first.first == warp; ++at)
        end(at->first.second, at->second);
}

void end_traffic() {
    for (auto &[where, one] : waiting)
        end(where.second, one);
    waiting.clear();
}

traffic take_traffic(const instruction &i, space where) {
    const auto found = totals.find({&i, where});
    if (found == totals.end())
        return {};
    const traffic all = found->second;
    totals.erase(found);
    return all;
}

} // namespace ptx

extern "C" void ptx_count_traffic(bool counts) { ptx::counts_traffic = counts; }
