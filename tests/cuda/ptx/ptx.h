/* An interpreter of PTX: what nvcc makes of the kernels, run thread by thread on the fibres of ../host/host.cpp.
 *
 *   parse.cpp       text of an entry to instructions         opcodes.cpp  the name of an instruction to its function
 *   arithmetic.cpp  integers, floats, comparisons            convert.cpp  cvt
 *   memory.cpp      loads, stores, copies, their checks      warp.cpp     barriers, shuffles, matrix instructions
 *   kernels.cpp     the entries of a folder, their launches and counts       traffic.cpp  wavefronts and sectors of warps
 *
 * The meaning of each instruction is that of "Parallel Thread Execution ISA" 9.0. An instruction, a modifier or a directive that
 * this program lacks ends the launch with its name, and so does what the ISA leaves undefined.
 */
#ifndef HC_TESTS_PTX_H
#define HC_TESTS_PTX_H

#include "cuda/matmul/wgmma.h"

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ptx {

struct thread;
struct instruction;
typedef void handler(thread &t, const instruction &i);

enum type : uint8_t { NONE, PRED, U8, S8, U16, S16, U32, S32, U64, S64, F32, F64 };
enum space : uint8_t { GENERIC, GLOBAL, SHARED, LOCAL, PARAM };
/* Addresses of these spaces begin here, so that one is not another; shared ones begin at 0, global ones are of this machine. */
enum : uint64_t { LOCAL_BASE = 1 << 28, PARAM_BASE = 1 << 29 };
int bytes_of(type what);
bool is_signed(type what);

struct instruction {
    handler *run;
    const char *opcode;   /* of a table that lasts */
    const uint32_t *slot; /* registers and constants in the order of the text, those of vectors too */
    uint32_t n_slots;
    int32_t guard; /* a predicate, or -1 */
    bool guard_is_negated;
    type what, from; /* from: of cvt */
    space where;
    uint8_t count;    /* of a vector that is loaded or stored */
    uint8_t rounding; /* of cvt to integers: 'n', 'z', 'm', 'p' */
    uint8_t width;    /* bytes of the first register */
    int64_t offset;   /* of an address */
    uint32_t target, line;
    uint64_t executed;
};

/* A symbol of a module: constants in global memory. */
struct module {
    std::string name, text;
    std::map<std::string, std::vector<uint64_t>, std::less<>> globals; /* uint64_t: aligned */
};

struct entry {
    module *home;
    std::string name, file;
    size_t body, end; /* in the text of its module, between the braces */
    uint32_t params_bytes, threads;
    std::map<std::string, uint32_t, std::less<>> params; /* offsets */

    bool is_parsed = false;
    std::vector<instruction> code;
    std::vector<uint32_t> slots;
    std::vector<uint64_t> initial; /* values of slots: constants are there, and special registers have places */
    std::vector<uint8_t> known;    /* 1: has a value */
    std::vector<uint8_t> widths;
    uint32_t special[13], local_bytes = 0;
};

enum { UNKNOWN, KNOWN, IN_FLIGHT }; /* IN_FLIGHT: an accumulator of products that nothing waited for yet */

struct copied {
    uint32_t at;
    int group;
};

/* Of a warpgroup, that runs: rows of 128 bytes of both operands, 64 and `columns`. */
struct product {
    uint64_t a, b;
    uint32_t columns;
    int group;
    uint32_t a_bytes, b_bytes; /* of a row that it reads */
};

struct thread {
    const entry *home;
    const instruction *next;
    std::vector<uint64_t> r;
    std::vector<uint8_t> known;
    std::vector<uint64_t> local; /* aligned */
    const void *params;
    uint32_t number; /* in its block */
    uint64_t jumps;
    std::vector<copied> copies;
    int groups;
    int32_t sums[128]; /* of products in flight, whose registers are `accumulators` */
    const uint32_t *accumulators;
    uint32_t n_sums;
    std::vector<product> products;
    int product_groups;
};

/* Ends the launch. The sentence names the instruction. */
[[noreturn]] __attribute__((format(printf, 2, 3))) void stop(const instruction &i, const char *format, ...);
[[noreturn]] void stop_unknown(thread &t, const instruction &i, uint32_t slot);

static inline uint64_t read(thread &t, const instruction &i, int n) {
    const uint32_t slot = i.slot[n];
    if (t.known[slot] != KNOWN)
        stop_unknown(t, i, slot);
    return t.r[slot];
}
template <typename T> static inline T get(thread &t, const instruction &i, int n) {
    const uint64_t bits = read(t, i, n);
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline void write(thread &t, const instruction &i, int n, uint64_t bits) {
    const uint32_t slot = i.slot[n];
    if (t.known[slot] == IN_FLIGHT)
        stop_unknown(t, i, slot);
    t.r[slot] = bits;
    t.known[slot] = KNOWN;
}
template <typename T> static inline void put(thread &t, const instruction &i, int n, T value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    write(t, i, n, bits);
}

/* Functions by the name of an instruction, with the number of its operands. */
struct known_opcode {
    handler *run;
    uint32_t n_slots; /* 0: any */
    type what;
};
typedef std::unordered_map<std::string, known_opcode> opcodes;
void add_arithmetic(opcodes &all);
void add_warp(opcodes &all);

/* opcodes.cpp: fills run and what follows from the name; NULL, or what is wrong. */
const char *resolve(std::string_view name, instruction &i, uint32_t *n_slots);
handler convert_integer, convert_to_float, convert_to_integer, convert_float, convert_half; /* convert.cpp */
handler load, store, move, select, pack, unpack, to_generic, from_generic, atomic_max, atomic_or, copy_async,
    copy_commit, copy_wait;
handler jump;

/* parse.cpp */
void list_entries(module &home, std::vector<entry> &found);
void parse(entry &home);

/* memory.cpp: for the rooms that read or write shared memory. */
enum { MANY = 0xffff };
unsigned char *shared_at(const instruction &i, uint32_t address, uint32_t bytes);
void reads_shared(const instruction &i, uint32_t reader, uint32_t address, uint32_t bytes);
void pass_barrier();
bool nan_differs(); /* of this launch: single precision has NaN of other bits */

} // namespace ptx

#endif
