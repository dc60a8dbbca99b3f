/* Text to instructions: declarations of registers, labels, scopes of inline assembly, constants. */
#include "ptx.h"

#include <algorithm>
#include <ctype.h>
#include <stdexcept>
#include <stdlib.h>

namespace ptx {
namespace {

[[noreturn]] void fail(const std::string &what, std::string_view text) {
    throw std::runtime_error(what + ": " + std::string(text.substr(0, 160)));
}

bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.'; }

struct reader {
    std::string_view text;
    size_t at = 0;

    void skip() {
        while (at < text.size()) {
            if (isspace((unsigned char)text[at]))
                at++;
            else if (text.substr(at, 2) == "//")
                at = std::min(text.find('\n', at), text.size());
            else
                break;
        }
    }
    bool ended() { return skip(), at >= text.size(); }
    bool take(char c) {
        skip();
        return at < text.size() && text[at] == c && ++at;
    }
    void expect(char c) {
        if (!take(c))
            fail(std::string("expected ") + c, text.substr(at));
    }
    std::string_view word() {
        skip();
        const size_t begin = at;
        while (at < text.size() && is_word(text[at]))
            at++;
        return text.substr(begin, at - begin);
    }
    std::string_view until(char c) {
        const size_t begin = at, end = text.find(c, at);
        if (end == text.npos)
            fail(std::string("expected ") + c, text.substr(at));
        at = end + 1;
        return text.substr(begin, end - begin);
    }
    int64_t number() {
        skip();
        const bool is_negative = take('-');
        const std::string digits(word());
        char *end;
        const uint64_t found = strtoull(digits.c_str(), &end, 0);
        if (digits.empty() || *end)
            fail("expected a number", text.substr(at));
        return (int64_t)(is_negative ? 0 - found : found);
    }
};

int width_of(std::string_view name) {
    static const std::map<std::string, int, std::less<>> all = {
        {".pred", 1}, {".b8", 1},  {".b16", 2}, {".u16", 2}, {".s16", 2}, {".b32", 4}, {".u32", 4},
        {".s32", 4},  {".f32", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}};
    const auto found = all.find(name);
    if (found == all.end())
        fail("unknown type", name);
    return found->second;
}

struct registers {
    uint32_t first, n;
};

enum { SPECIALS = 13 };
const char *const SPECIAL[SPECIALS] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                       "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                       "%nctaid.y", "%nctaid.z", "%laneid"};

struct parser {
    entry &home;
    reader in;
    uint32_t line;
    std::vector<std::map<std::string, registers, std::less<>>> scopes;
    std::map<std::string, uint32_t, std::less<>> symbols; /* slots */
    std::map<uint64_t, uint32_t> constants;
    std::map<std::string, uint32_t, std::less<>> labels;
    std::vector<std::pair<size_t, std::string>> jumps;
    std::vector<std::vector<uint32_t>> used; /* slots of each instruction */

    parser(entry &given) : home(given), scopes(1) {
        in.text = std::string_view(home.home->text).substr(home.body, home.end - home.body);
        line = 1 + (uint32_t)std::count(home.home->text.begin(), home.home->text.begin() + (long)home.body, '\n');
    }
    uint32_t add_slot(int width, uint64_t value = 0, bool is_known = false) {
        home.initial.push_back(value);
        home.known.push_back(is_known);
        home.widths.push_back((uint8_t)width);
        return (uint32_t)home.initial.size() - 1;
    }
    uint32_t constant(uint64_t value) {
        const auto [found, is_new] = constants.try_emplace(value, 0);
        if (is_new)
            found->second = add_slot(8, value, true);
        return found->second;
    }
    void declare_registers() {
        const int width = width_of(in.word());
        do {
            const std::string name(in.word());
            uint32_t n = 0;
            if (in.take('<')) {
                n = (uint32_t)in.number();
                in.expect('>');
            }
            const uint32_t first = (uint32_t)home.initial.size();
            for (uint32_t i = 0; i < std::max(n, 1u); i++)
                add_slot(width);
            scopes.back()[name] = {first, n};
        } while (in.take(','));
        in.expect(';');
    }
    void declare_local() {
        if (in.word() != ".align")
            fail("expected .align", in.text.substr(in.at));
        const uint32_t align = (uint32_t)in.number();
        const int width = width_of(in.word());
        const std::string name(in.word());
        in.expect('[');
        home.local_bytes = (home.local_bytes + align - 1) / align * align;
        symbols[name] = constant(LOCAL_BASE + home.local_bytes);
        home.local_bytes += (uint32_t)in.number() * (uint32_t)width;
        in.expect(']');
        in.expect(';');
    }
    uint32_t slot_of(std::string_view name) {
        if (name.empty())
            fail("expected an operand", in.text.substr(in.at));
        if (name == "_") /* a result that nobody reads */
            return add_slot(8);
        for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
            const auto whole = scope->find(name);
            if (whole != scope->end() && whole->second.n == 0)
                return whole->second.first;
            size_t letters = name.size();
            while (letters > 0 && isdigit((unsigned char)name[letters - 1]))
                letters--;
            const auto found = scope->find(name.substr(0, letters));
            if (found != scope->end() && letters < name.size()) {
                const uint32_t n = (uint32_t)strtoul(name.data() + letters, NULL, 10);
                if (n < found->second.n)
                    return found->second.first + n;
            }
        }
        for (int i = 0; i < SPECIALS; i++)
            if (name == SPECIAL[i])
                return home.special[i];
        const auto symbol = symbols.find(name);
        if (symbol != symbols.end())
            return symbol->second;
        const auto param = home.params.find(name);
        if (param != home.params.end())
            return symbols[std::string(name)] = constant(PARAM_BASE + param->second);
        const auto global = home.home->globals.find(name);
        if (global != home.home->globals.end())
            return symbols[std::string(name)] = constant((uint64_t)(uintptr_t)global->second.data());
        if (name == "hc_shared_bytes")
            return constant(0);
        if ((name[0] == '0' && name.size() == 10 && name[1] == 'f') || (name.size() == 18 && name[1] == 'd'))
            return constant(strtoull(std::string(name.substr(2)).c_str(), NULL, 16));
        char *end;
        const std::string digits(name);
        const uint64_t value = strtoull(digits.c_str(), &end, 0);
        if (*end && std::string_view(end) != "U")
            fail("unknown operand", name);
        return constant(value);
    }
    uint32_t operand() {
        if (!in.take('-'))
            return slot_of(in.word());
        const std::string digits(in.word());
        return constant(0 - strtoull(digits.c_str(), NULL, 0));
    }
    void parse_operands(instruction &i, std::vector<uint32_t> &slots) {
        bool is_first = true;
        while (!in.take(';')) {
            if (!is_first && !in.take(','))
                in.expect('|');
            is_first = false;
            if (in.take('{')) {
                if (i.run == move) /* of a register to parts, or of parts to one */
                    i.run = slots.empty() ? unpack : pack;
                do
                    slots.push_back(operand());
                while (in.take(','));
                in.expect('}');
            } else if (in.take('[')) {
                slots.push_back(operand());
                if (in.take('+'))
                    i.offset += in.number();
                in.expect(']');
            } else
                slots.push_back(operand());
        }
    }
    void parse_instruction(std::string_view first) {
        instruction i = {};
        i.guard = -1;
        i.line = line;
        if (first == "@") {
            i.guard_is_negated = in.take('!');
            i.guard = (int32_t)slot_of(in.word());
            first = in.word();
        }
        std::string name(first);
        if (in.take(':')) { /* a modifier has colons: mma.sp::ordered_metadata, .shared::cta */
            in.expect(':');
            name += "::" + std::string(in.word());
        }
        uint32_t n_slots;
        if (const char *wrong = resolve(name, i, &n_slots))
            fail(wrong, name);
        std::vector<uint32_t> slots;
        if (i.run == jump) {
            jumps.push_back({home.code.size(), std::string(in.word())});
            in.expect(';');
        } else
            parse_operands(i, slots);
        if (n_slots && slots.size() != n_slots && i.run != pack && i.run != unpack)
            fail("another number of operands", name);
        i.n_slots = (uint32_t)slots.size();
        i.width = slots.empty() ? 0 : home.widths[slots[0]];
        home.code.push_back(i);
        used.push_back(slots);
    }
    void parse_statement() {
        const size_t begin = in.at;
        if (in.take('{')) {
            scopes.emplace_back();
            return;
        }
        if (in.take('}')) {
            scopes.pop_back();
            return;
        }
        if (in.take('@'))
            return parse_instruction("@");
        const std::string_view first = in.word();
        if (first == ".reg")
            declare_registers();
        else if (first == ".local")
            declare_local();
        else if (first == ".pragma") /* hints for ptxas */
            in.until(';');
        else if (!first.empty() && first[0] == '$' && in.take(':'))
            labels[std::string(first)] = (uint32_t)home.code.size();
        else if (!first.empty() && isalpha((unsigned char)first[0]))
            parse_instruction(first);
        else
            fail("unknown statement", in.text.substr(begin));
    }
    void parse_body() {
        for (int i = 0; i < SPECIALS; i++)
            home.special[i] = add_slot(4, 0, true);
        size_t counted = 0;
        while (!in.ended()) {
            for (; counted < in.at; counted++)
                line += in.text[counted] == '\n';
            parse_statement();
        }
        instruction last = {};
        uint32_t none;
        resolve("ret", last, &none);
        last.guard = -1;
        home.code.push_back(last);
        used.emplace_back();
        for (const auto &[number, label] : jumps) {
            const auto found = labels.find(label);
            if (found == labels.end())
                fail("unknown label", label);
            home.code[number].target = found->second;
        }
        size_t all = 0;
        for (const auto &slots : used)
            all += slots.size();
        home.slots.reserve(all);
        for (size_t i = 0; i < used.size(); i++) {
            home.code[i].slot = home.slots.data() + home.slots.size();
            home.slots.insert(home.slots.end(), used[i].begin(), used[i].end());
        }
        home.is_parsed = true;
    }
};

/* .global .align 4 .b8 name[252] = {32, 0, ...}; */
void parse_global(module &home, reader &in) {
    if (in.word() != ".align")
        fail("expected .align", in.text.substr(in.at));
    if (in.number() > 8)
        fail("another alignment", in.text.substr(in.at));
    const size_t width = (size_t)width_of(in.word());
    const std::string name(in.word());
    in.expect('[');
    const size_t n = (size_t)in.number();
    in.expect(']');
    std::vector<uint64_t> &memory = home.globals[name];
    memory.assign((n * width + 7) / 8 + 1, 0);
    if (in.take(';'))
        return;
    in.expect('=');
    in.expect('{');
    unsigned char *to = (unsigned char *)memory.data();
    do {
        in.skip();
        uint64_t value;
        if (in.text.substr(in.at, 8) == "generic(") {
            in.until('(');
            const auto found = home.globals.find(in.until(')'));
            if (found == home.globals.end())
                fail("unknown constant", name);
            value = (uint64_t)(uintptr_t)found->second.data();
        } else
            value = (uint64_t)in.number();
        if (to + width > (unsigned char *)memory.data() + n * width)
            fail("too many values", name);
        memcpy(to, &value, width);
        to += width;
    } while (in.take(','));
    in.expect('}');
    in.expect(';');
}

void parse_entry(module &home, reader &in, std::vector<entry> &found) {
    entry made = {};
    made.home = &home;
    made.name = std::string(in.word());
    in.expect('(');
    while (!in.take(')')) {
        if (in.word() != ".param")
            fail("expected .param", in.text.substr(in.at));
        std::string_view word = in.word();
        uint32_t align = 0;
        if (word == ".align") {
            align = (uint32_t)in.number();
            word = in.word();
        }
        uint32_t bytes = (uint32_t)width_of(word);
        align = align ? align : bytes;
        const std::string name(in.word());
        if (in.take('[')) {
            bytes *= (uint32_t)in.number();
            in.expect(']');
        }
        made.params_bytes = (made.params_bytes + align - 1) / align * align;
        made.params[name] = made.params_bytes;
        made.params_bytes += bytes;
        in.take(',');
    }
    made.threads = 1024;
    for (std::string_view word = in.word(); !word.empty(); word = in.word()) {
        uint32_t product = 1;
        do
            product *= (uint32_t)in.number();
        while (in.take(','));
        if (word == ".maxntid")
            made.threads = product;
        else if (word != ".minnctapersm") /* which changes how many registers ptxas gives */
            fail("unknown directive", word);
    }
    in.expect('{');
    made.body = in.at;
    for (int depth = 1; depth > 0; in.at++) {
        in.skip();
        if (in.at >= in.text.size())
            fail("no end", made.name);
        depth += in.text[in.at] == '{' ? 1 : in.text[in.at] == '}' ? -1 : 0;
    }
    made.end = in.at - 1;
    found.push_back(std::move(made));
}

} // namespace

void list_entries(module &home, std::vector<entry> &found) {
    reader in = {home.text};
    while (!in.ended()) {
        const std::string_view word = in.word();
        if (word == ".version" || word == ".target" || word == ".address_size")
            in.until('\n');
        else if (word == ".extern") { /* .shared .align 1024 .b8 hc_shared_bytes[]: dynamic shared memory, at 0 */
            if (in.until(';').find(".b8 hc_shared_bytes[]") == std::string_view::npos)
                fail("unknown declaration", in.text.substr(in.at));
        } else if (word == ".global")
            parse_global(home, in);
        else if (word == ".visible") {
            if (in.word() != ".entry")
                fail("expected .entry", in.text.substr(in.at));
            parse_entry(home, in, found);
        } else
            fail("unknown directive", word);
    }
}

void parse(entry &home) { parser(home).parse_body(); }

} // namespace ptx
