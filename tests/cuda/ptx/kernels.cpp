/* The entries of the PTX files in the folder of this library are kernels of host.cpp, each run by the interpreter. */
#include "kernels.h"

#include <algorithm>
#include <deque>
#include <dirent.h>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <stdarg.h>
#include <stdexcept>
#include <stdio.h>
#include <stdlib.h>

namespace ptx {

std::vector<allocation> allocations;
std::vector<warp_state> warps;
uint32_t block_threads, at_barrier;

namespace {

std::deque<module> modules;
std::map<std::string, entry, std::less<>> entries;
std::vector<thread> threads; /* kept from block to block: a fault leaves fibres where they are */
uint64_t block;
char sentence[512];

void begin_block() {
    block = hc_host_running.blocks;
    block_threads = blockDim.x * blockDim.y * blockDim.z;
    at_barrier = 0;
    warps.assign((block_threads + 31) / 32, {NULL, 0});
    threads.resize(std::max<size_t>(threads.size(), block_threads));
    clear_shared();
    end_traffic();
}

void run_thread(const void *params) {
    entry &home = entries.find(hc_host_running.kernel)->second;
    if (!home.is_parsed) {
        try {
            parse(home);
        } catch (const std::runtime_error &wrong) {
            snprintf(sentence, sizeof sentence, "%s", wrong.what());
            hc_host_stop(sentence);
        }
    }
    if (block != hc_host_running.blocks)
        begin_block();
    const uint32_t number = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    thread &t = threads[number];
    t.home = &home;
    t.r = home.initial;
    t.known = home.known;
    t.local.assign(home.local_bytes / 8 + 2, 0xa5a5a5a5a5a5a5a5);
    t.params = params;
    t.number = number;
    t.jumps = 0;
    t.copies.clear();
    t.groups = 0;
    t.accumulators = NULL;
    t.products.clear();
    t.product_groups = 0;
    const hc_dim3 all[] = {threadIdx, blockDim, blockIdx, gridDim};
    for (int i = 0; i < 4; i++) {
        t.r[home.special[3 * i]] = all[i].x;
        t.r[home.special[3 * i + 1]] = all[i].y;
        t.r[home.special[3 * i + 2]] = all[i].z;
    }
    t.r[home.special[12]] = number % 32;
    t.next = home.code.data();
    while (t.next) {
        instruction &i = home.code[(size_t)(t.next - home.code.data())];
        t.next++;
        if (i.guard >= 0) {
            if (t.known[(size_t)i.guard] != KNOWN)
                stop_unknown(t, i, (uint32_t)i.guard);
            if ((bool)t.r[(size_t)i.guard] == i.guard_is_negated)
                continue;
        }
        i.executed++;
        i.run(t, i);
    }
}

struct folder {
    folder() {
        Dl_info self;
        if (!dladdr((void *)&run_thread, &self))
            abort();
        const std::string file = self.dli_fname, path = file.substr(0, file.rfind('/'));
        DIR *opened = opendir(path.c_str());
        if (!opened)
            abort();
        for (const dirent *one = readdir(opened); one; one = readdir(opened)) {
            const std::string name = one->d_name;
            if (name.size() < 4 || name.substr(name.size() - 4) != ".ptx")
                continue;
            std::ifstream opened_file(path + "/" + name);
            modules.emplace_back();
            modules.back().name = name;
            modules.back().text.assign(std::istreambuf_iterator<char>(opened_file), {});
            read_module(modules.back());
        }
        closedir(opened);
    }
    ~folder() {
        if (const char *path = getenv("PTX_COUNTS"))
            write_counts(path);
    }
    /* Adds to a file a line for each kernel and instruction that ran: how often, by all threads of all launches. */
    static void write_counts(const char *path) {
        std::ofstream file(path, std::ios::app);
        for (auto &[name, one] : entries) {
            std::map<std::string, uint64_t> counts;
            for (instruction &i : one.code) {
                counts[i.opcode] += i.executed;
                i.executed = 0;
            }
            for (const auto &[opcode, n] : counts)
                if (n)
                    file << name << ' ' << opcode << ' ' << n << '\n';
        }
    }
    /* The same of requests: their line, space, number, units and the least of these. */
    static void write_traffic(const char *path) {
        std::ofstream file(path, std::ios::app);
        end_traffic();
        for (auto &[name, one] : entries)
            for (const instruction &i : one.code)
                for (const auto &[where, word] : {std::pair(SHARED, " shared "), std::pair(GLOBAL, " global ")}) {
                    const traffic all = take_traffic(i, where);
                    if (all.requests)
                        file << name << ' ' << i.opcode << ' ' << i.line << word << all.requests << ' ' << all.units << ' '
                             << all.least << '\n';
                }
    }
    static void read_module(module &home) {
        std::vector<entry> found;
        try {
            list_entries(home, found);
        } catch (const std::runtime_error &wrong) {
            fprintf(stderr, "%s: %s\n", home.name.c_str(), wrong.what());
            abort();
        }
        for (entry &one : found) {
            one.file = home.name.substr(0, home.name.size() - 4) + ".cu";
            const auto [at, is_new] = entries.emplace(one.name, std::move(one));
            if (is_new)
                hc_host_kernel(at->first.c_str(), at->second.file.c_str(), at->second.params_bytes, at->second.threads, run_thread);
        }
    }
} reads_folder;

} // namespace

void stop(const instruction &i, const char *format, ...) {
    const int n = snprintf(sentence, sizeof sentence, "line %u: %s ", i.line, i.opcode);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence + n, sizeof sentence - (size_t)n, format, arguments);
    va_end(arguments);
    hc_host_stop(sentence);
}

void stop_unknown(thread &t, const instruction &i, uint32_t slot) {
    if (t.known[slot] == IN_FLIGHT)
        stop(i, "touches a sum of products before it waited");
    stop(i, "reads a register that nothing wrote");
}

bool nan_differs() { return hc_host_running.order % 2; }

bool is_constant(const module *home, uint64_t address, uint32_t bytes) {
    for (const auto &[name, memory] : home->globals)
        if (address >= (uint64_t)(uintptr_t)memory.data() &&
            address + bytes <= (uint64_t)(uintptr_t)(memory.data() + memory.size()))
            return true;
    return false;
}

} // namespace ptx

extern "C" {

/* Addresses and sizes of all that is allocated, ascending. */
void hc_host_allocations(const uint64_t *given, uint32_t n) {
    ptx::allocations.clear();
    for (uint32_t i = 0; i < n; i++)
        ptx::allocations.push_back({given[2 * i], given[2 * i + 1]});
}

/* Adds what ran since the last call to a file. */
void ptx_write_counts(const char *path) { ptx::folder::write_counts(path); }
void ptx_write_traffic(const char *path) { ptx::folder::write_traffic(path); }
}
