/* The name of an instruction, with all of its modifiers, to the function that runs it. */
#include "ptx.h"

namespace ptx {
namespace {

struct named {
    const char *name;
    type what;
};
const named TYPES[] = {{"pred", PRED}, {"u8", U8},   {"s8", S8},   {"b8", U8},   {"u16", U16},
                       {"s16", S16},   {"b16", U16}, {"u32", U32}, {"s32", S32}, {"b32", U32},
                       {"u64", U64},   {"s64", S64}, {"b64", U64}, {"f32", F32}, {"f64", F64}};

type type_of(std::string_view name) {
    for (const named &one : TYPES)
        if (name == one.name)
            return one.what;
    return NONE;
}

bool is_float(type what) { return what >= F32; }

typedef std::vector<std::string_view> words;

words split(std::string_view name) {
    words found;
    for (size_t begin = 0; begin <= name.size();) {
        const size_t end = std::min(name.find('.', begin), name.size());
        found.push_back(name.substr(begin, end - begin));
        begin = end + 1;
    }
    return found;
}

bool take(words &rest, std::string_view name) {
    if (rest.empty() || rest.front() != name)
        return false;
    rest.erase(rest.begin());
    return true;
}

space take_space(words &rest) {
    return take(rest, "global")   ? GLOBAL
           : take(rest, "shared") ? SHARED
           : take(rest, "local")  ? LOCAL
           : take(rest, "param")  ? PARAM
                                  : GENERIC;
}

/* ld, st: space, .nc (of memory that no kernel writes meanwhile), which caches keep it, a vector, a type. */
bool resolve_memory(bool is_load, words rest, instruction &i) {
    i.run = is_load ? load : store;
    i.where = take_space(rest);
    if (is_load && i.where == GLOBAL)
        take(rest, "nc") && take(rest, "L1::no_allocate"); /* else a cache keeps it */
    i.count = take(rest, "v2") ? 2 : take(rest, "v4") ? 4 : 1;
    i.what = rest.size() == 1 ? type_of(rest[0]) : NONE;
    return i.what > PRED && (is_load || i.where != PARAM);
}

/* A conversion that rounds says how; one that does not says nothing. */
bool resolve_conversion(words rest, instruction &i) {
    for (const char *one : {"rni", "rzi", "rmi", "rpi"})
        if (take(rest, one))
            i.rounding = (uint8_t)one[1];
    const bool is_rounded = take(rest, "rn");
    if (rest.size() != 2)
        return false;
    i.what = type_of(rest[0]), i.from = type_of(rest[1]);
    if (i.what <= PRED || i.from <= PRED)
        return false;
    if (is_float(i.what) && is_float(i.from)) {
        i.run = convert_float;
        if (i.rounding) /* to a whole number */
            return i.what == F64 && i.from == F64 && !is_rounded;
        return i.what != i.from && is_rounded == (i.what == F32);
    }
    if (is_float(i.what)) {
        i.run = convert_to_float;
        return !i.rounding && is_rounded;
    }
    i.run = is_float(i.from) ? convert_to_integer : convert_integer;
    return !is_rounded && (bool)i.rounding == is_float(i.from);
}

bool resolve_address(words rest, instruction &i) {
    const bool is_back = take(rest, "to");
    i.where = take_space(rest);
    i.run = is_back ? from_generic : to_generic;
    return i.where != GENERIC && i.where != PARAM && rest.size() == 1 && type_of(rest[0]) == U64;
}

bool resolve_anew(std::string_view name, instruction &i, uint32_t *n_slots) {
    static const opcodes all = [] {
        opcodes made;
        add_arithmetic(made);
        add_warp(made);
        made["cp.async.cg.shared.global"] = made["cp.async.ca.shared.global"] = {copy_async, 0, NONE};
        made["cvt.f32.f16"] = {convert_half, 2, F32};
        made["cp.async.commit_group"] = {copy_commit, 0, NONE};
        made["cp.async.wait_group"] = {copy_wait, 1, NONE};
        return made;
    }();
    const auto found = all.find(std::string(name));
    *n_slots = 0;
    if (found != all.end()) {
        i.run = found->second.run;
        i.what = found->second.what;
        *n_slots = found->second.n_slots;
        return true;
    }
    words rest = split(name);
    const std::string_view verb = rest.front();
    rest.erase(rest.begin());
    if (verb == "ld" || verb == "st") {
        const bool is_known = resolve_memory(verb == "ld", rest, i);
        *n_slots = 1 + i.count;
        return is_known;
    }
    if (verb == "atom") {
        i.where = take_space(rest);
        i.run = take(rest, "max") ? atomic_max : take(rest, "or") ? atomic_or : NULL;
        *n_slots = 3;
        return i.run && i.where != GENERIC && i.where <= SHARED && rest.size() == 1 && type_of(rest[0]) == U32;
    }
    *n_slots = verb == "selp" ? 4 : 2;
    if (verb == "cvt")
        return resolve_conversion(rest, i);
    if (verb == "cvta")
        return resolve_address(rest, i);
    i.what = rest.size() == 1 ? type_of(rest[0]) : NONE;
    i.run = verb == "mov" ? move : verb == "selp" ? select : NULL;
    return i.run && i.what != NONE && i.what != U8 && i.what != S8;
}

} // namespace

int bytes_of(type what) {
    static const int all[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    return all[what];
}

bool is_signed(type what) { return what == S8 || what == S16 || what == S32 || what == S64; }

const char *resolve(std::string_view name, instruction &i, uint32_t *n_slots) {
    struct resolved {
        instruction made;
        uint32_t n_slots;
        bool is_known;
    };
    static auto &all = *new std::map<std::string, resolved, std::less<>>; /* names last until the counts are written */
    auto found = all.find(name);
    if (found == all.end()) {
        resolved one = {};
        one.is_known = resolve_anew(name, one.made, &one.n_slots);
        found = all.emplace(name, one).first;
        found->second.made.opcode = found->first.c_str();
    }
    if (!found->second.is_known)
        return "unknown instruction";
    const instruction given = i;
    i = found->second.made;
    i.guard = given.guard, i.guard_is_negated = given.guard_is_negated, i.line = given.line;
    *n_slots = found->second.n_slots;
    return NULL;
}

} // namespace ptx
