// TOML into the tree of values, by toml++. This is the only C++ of the library.
// Invariant: no exception leaves this file, and toml++ never sees a text that would nest deeper
// than its recursive destructors can bear.
#include "config/value.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <vector>

#define TOML_MAX_NESTED_VALUES 64
#include <toml++/toml.h>

namespace {

// The end of the string that opens at text[i].
size_t skip_string(std::string_view text, size_t i) {
    const char quote = text[i];
    const bool triple = i + 2 < text.size() && text[i + 1] == quote && text[i + 2] == quote;
    for (i += triple ? 3 : 1; i < text.size(); i++) {
        if (text[i] == '\\' && quote == '"')
            i++;
        else if (text[i] == '\n' && !triple)
            return i; // unterminated: toml++ says so
        else if (text[i] == quote &&
                 (!triple || (i + 2 < text.size() && text[i + 1] == quote && text[i + 2] == quote)))
            return i + (triple ? 3 : 1);
    }
    return text.size();
}

// A dotted key a.b.c nests a table a part, without a limit in toml++. Returns the line of a key of
// more than OCT_VALUE_MAX_DEPTH parts, or 0.
int find_deep_key(std::string_view text) {
    int line = 1, dots = 0;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '"' || c == '\'') {
            const size_t end = skip_string(text, i);
            line += (int)std::count(text.begin() + (long)i, text.begin() + (long)end, '\n');
            i = end - 1;
        } else if (c == '#') {
            while (i + 1 < text.size() && text[i + 1] != '\n')
                i++;
        } else if (c == '.') {
            if (++dots >= OCT_VALUE_MAX_DEPTH)
                return line;
        } else if (std::string_view("=,{}[]\n").find(c) != std::string_view::npos) {
            dots = 0;
            line += c == '\n';
        }
    }
    return 0;
}

class converter {
  public:
    converter(const char *path, oct_arena *arena, oct_error *err) : builder_{path, arena, err} {
    }

    // NULL with the error filled when the node can't be a value of ours.
    oct_value *convert(const toml::node &node, int depth) {
        const int line = (int)node.source().begin.line, column = (int)node.source().begin.column;
        if (depth > OCT_VALUE_MAX_DEPTH) {
            oct_fail(builder_.err, OCT_INVALID, "%s:%d: nested too deeply; at most %d levels",
                     builder_.path, line, OCT_VALUE_MAX_DEPTH);
            return nullptr;
        }
        if (const auto *table = node.as_table())
            return convert_table(*table, line, column, depth);
        if (const auto *list = node.as_array())
            return convert_list(*list, line, column, depth);
        if (const auto *text = node.as_string())
            return oct_value_new_string(&builder_, text->get().data(), text->get().size(), line,
                                        column);
        return convert_scalar(node, line, column);
    }

  private:
    oct_value *convert_scalar(const toml::node &node, int line, int column) {
        oct_value *v = nullptr;
        if (const auto *boolean = node.as_boolean()) {
            if ((v = oct_value_new(&builder_, OCT_VALUE_BOOL, line, column)))
                v->boolean = boolean->get();
        } else if (const auto *integer = node.as_integer()) {
            if ((v = oct_value_new(&builder_, OCT_VALUE_INT, line, column)))
                v->integer = integer->get();
        } else if (const auto *number = node.as_floating_point()) {
            if ((v = oct_value_new(&builder_, OCT_VALUE_DOUBLE, line, column)))
                v->number = number->get();
        } else {
            oct_fail(builder_.err, OCT_INVALID, "%s:%d: dates and times have no meaning here",
                     builder_.path, line);
        }
        return v;
    }

    oct_value *convert_list(const toml::array &list, int line, int column, int depth) {
        oct_value *v = oct_value_new(&builder_, OCT_VALUE_LIST, line, column);
        if (!v)
            return nullptr;
        for (const toml::node &node : list) {
            oct_value *item = convert(node, depth + 1);
            if (!item || oct_value_append(&builder_, v, nullptr, 0, item) != OCT_OK)
                return nullptr;
        }
        return v;
    }

    oct_value *convert_table(const toml::table &table, int line, int column, int depth) {
        struct entry {
            const toml::key *key;
            const toml::node *node;
        };
        std::vector<entry> entries;
        for (auto &&[key, node] : table)
            entries.push_back({&key, &node});
        // toml++ keeps keys in alphabetical order; messages follow the file's.
        std::stable_sort(entries.begin(), entries.end(), [](const entry &a, const entry &b) {
            return a.key->source().begin < b.key->source().begin;
        });
        oct_value *v = oct_value_new(&builder_, OCT_VALUE_TABLE, line, column);
        if (!v)
            return nullptr;
        for (const entry &e : entries) {
            oct_value *item = convert(*e.node, depth + 1);
            if (!item)
                return nullptr;
            item->line = (int)e.key->source().begin.line; // a value may start on a later line
            if (oct_value_append(&builder_, v, e.key->str().data(), e.key->str().size(), item) !=
                OCT_OK)
                return nullptr;
        }
        return v;
    }

    oct_value_builder builder_;
};

} // namespace

extern "C" oct_status oct_toml_parse(const char *path, const char *text, size_t n_bytes,
                                     oct_arena *arena, const oct_value **root, oct_error *err) {
    *root = nullptr;
    oct_error local = {};
    oct_error *e = err ? err : &local;
    try {
        const std::string_view view(text, n_bytes);
        if (const int line = find_deep_key(view))
            return oct_fail(e, OCT_INVALID, "%s:%d: nested too deeply; at most %d levels", path,
                            line, OCT_VALUE_MAX_DEPTH);
        const toml::table table = toml::parse(view);
        *root = converter(path, arena, e).convert(table, 1);
        return *root ? OCT_OK : e->status;
    } catch (const toml::parse_error &error) {
        const std::string_view what = error.description();
        return oct_fail(e, OCT_INVALID, "%s:%d: not valid TOML: %.*s", path,
                        (int)error.source().begin.line, (int)what.size(), what.data());
    } catch (const std::bad_alloc &) {
        return oct_fail_memory(e);
    } catch (const std::exception &error) {
        return oct_fail(e, OCT_INVALID, "%s: not valid TOML: %s", path, error.what());
    }
}
