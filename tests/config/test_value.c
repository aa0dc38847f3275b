/* The two readers: what TOML and YAML texts become, where each value stands, and what hostile texts
 * meet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/strbuf.h"
#include "config/value.h"

typedef oct_status parse_function(const char *, const char *, size_t, oct_arena *,
                                  const oct_value **, oct_error *);

static const oct_value *parse_good(parse_function *parse, const char *text, oct_arena *arena) {
    const oct_value *root;
    oct_error err = {0};
    if (parse("f", text, strlen(text), arena, &root, &err))
        fail_msg("%s", err.message);
    assert_int_equal(root->kind, OCT_VALUE_TABLE);
    return root;
}

static void expect_error_bytes(parse_function *parse, const char *text, size_t n_bytes,
                               const char *message) {
    const oct_value *root;
    oct_error err = {0};
    oct_arena *arena = oct_arena_create();
    assert_int_equal(parse("f", text, n_bytes, arena, &root, &err), OCT_INVALID);
    assert_null(root);
    assert_string_equal(err.message, message);
    oct_arena_destroy(arena);
}

static void expect_error(parse_function *parse, const char *text, const char *message) {
    expect_error_bytes(parse, text, strlen(text), message);
}

static void expect_place(const oct_value *v, int line, int column) {
    assert_non_null(v);
    assert_int_equal(v->line, line);
    assert_int_equal(v->column, column);
}

static void given_toml_values_they_have_kinds_order_and_places(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    const oct_value *root = parse_good(
        oct_toml_parse,
        "z = 1\n[b]\nyes = true\nf = 1e-5\ns = 'x'\n  l = [1,\n 'two']\n[a.c]\ni = -7\n", arena);
    assert_int_equal(root->items.n, 3);
    assert_string_equal(root->items.first->key, "z");
    const oct_value *b = oct_value_find(root, "b");
    assert_ptr_equal(root->items.first->next, b);
    assert_true(oct_value_find(b, "yes")->boolean);
    assert_true(oct_value_find(b, "f")->number == 1e-5);
    assert_string_equal(oct_value_find(b, "s")->string, "x");
    const oct_value *l = oct_value_find(b, "l");
    assert_int_equal(l->items.n, 2);
    assert_int_equal(l->items.first->kind, OCT_VALUE_INT);
    assert_string_equal(l->items.first->next->string, "two");
    expect_place(l, 6, 7);
    expect_place(l->items.first->next, 7, 2);
    const oct_value *c = oct_value_find(oct_value_find(root, "a"), "c");
    expect_place(oct_value_find(c, "i"), 9, 5);
    assert_int_equal(oct_value_find(c, "i")->integer, -7);
    assert_null(oct_value_find(root, "y"));
    assert_null(oct_value_find(l, "y"));
    oct_arena_destroy(arena);
}

static void given_yaml_scalars_their_looks_decide_the_kind(void **state) {
    (void)state;
    static const struct {
        const char *text;
        oct_value_kind kind;
        double number;
    } cases[] = {
        {"true", OCT_VALUE_BOOL, 1},
        {"True", OCT_VALUE_BOOL, 1},
        {"yes", OCT_VALUE_BOOL, 1},
        {"Off", OCT_VALUE_BOOL, 0},
        {"FALSE", OCT_VALUE_BOOL, 0},
        {"0", OCT_VALUE_INT, 0},
        {"-12", OCT_VALUE_INT, -12},
        {"+3", OCT_VALUE_INT, 3},
        {"1_000", OCT_VALUE_INT, 1000},
        {"0x1F", OCT_VALUE_INT, 31},
        {"1e-5", OCT_VALUE_DOUBLE, 1e-5},
        {"1.0e-5", OCT_VALUE_DOUBLE, 1e-5},
        {".5", OCT_VALUE_DOUBLE, 0.5},
        {"5.", OCT_VALUE_DOUBLE, 5},
        {"-2.5E3", OCT_VALUE_DOUBLE, -2500},
        {".inf", OCT_VALUE_DOUBLE, INFINITY},
        {"-.Inf", OCT_VALUE_DOUBLE, -INFINITY},
        {"null", OCT_VALUE_NULL, 0},
        {"~", OCT_VALUE_NULL, 0},
        {"", OCT_VALUE_NULL, 0},
        {"'true'", OCT_VALUE_STRING, 0},
        {"\"12\"", OCT_VALUE_STRING, 0},
        {"012", OCT_VALUE_STRING, 0},
        {"1.2.3", OCT_VALUE_STRING, 0},
        {"auto", OCT_VALUE_STRING, 0},
        {"e5", OCT_VALUE_STRING, 0},
        {"-", OCT_VALUE_LIST, 0},
        {".", OCT_VALUE_STRING, 0},
        {"1e", OCT_VALUE_STRING, 0},
        {"_", OCT_VALUE_STRING, 0},
        {"''", OCT_VALUE_STRING, 0},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_arena *arena = oct_arena_create();
        oct_strbuf b = {0};
        oct_strbuf_printf(&b, "k:\n  %s\n", cases[i].text);
        const oct_value *v = oct_value_find(parse_good(oct_yaml_parse, b.text, arena), "k");
        if (v->kind != cases[i].kind)
            fail_msg("%s: %s", cases[i].text, oct_value_kind_name(v->kind));
        if (v->kind == OCT_VALUE_BOOL)
            assert_true(v->boolean == (cases[i].number != 0));
        if (v->kind == OCT_VALUE_INT)
            assert_int_equal(v->integer, (int64_t)cases[i].number);
        if (v->kind == OCT_VALUE_DOUBLE)
            assert_true(v->number == cases[i].number);
        oct_strbuf_free(&b);
        oct_arena_destroy(arena);
    }
}

static void given_anchors_aliases_and_merge_keys_they_are_resolved(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    const oct_value *root = parse_good(oct_yaml_parse,
                                       "base: &base {a: 1, b: &list [x, y]}\n"
                                       "more: &more {b: 7, c: 8}\n"
                                       "one:\n  <<: *base\n  a: 2\n"
                                       "two:\n  d: 0\n  <<: [*more, *base]\n"
                                       "three: *list\n"
                                       "four: {<<: *base, <<: *more}\n"
                                       "'<<': plain\n",
                                       arena);
    const oct_value *one = oct_value_find(root, "one"), *two = oct_value_find(root, "two");
    assert_int_equal(one->items.n, 2);
    assert_int_equal(oct_value_find(one, "a")->integer, 2);
    assert_int_equal(oct_value_find(one, "b")->items.n, 2);
    assert_int_equal(two->items.n, 4);
    assert_int_equal(oct_value_find(two, "b")->integer, 7);
    assert_int_equal(oct_value_find(two, "a")->integer, 1);
    const oct_value *three = oct_value_find(root, "three");
    assert_string_equal(three->items.first->next->string, "y");
    assert_int_equal(three->line, 9);
    assert_int_equal(oct_value_find(oct_value_find(root, "four"), "c")->integer, 8);
    assert_string_equal(oct_value_find(root, "<<")->string, "plain");
    oct_arena_destroy(arena);
}

static void given_empty_texts_the_root_is_an_empty_table(void **state) {
    (void)state;
    static const char *const texts[] = {"", "# only this\n", "\n\n"};
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        oct_arena *arena = oct_arena_create();
        assert_int_equal(parse_good(oct_toml_parse, texts[i], arena)->items.n, 0);
        assert_int_equal(parse_good(oct_yaml_parse, texts[i], arena)->items.n, 0);
        oct_arena_destroy(arena);
    }
}

static void given_wrong_texts_one_line_says_where(void **state) {
    (void)state;
    expect_error(
        oct_toml_parse, "a = 1\na = 2\n",
        "f:2: not valid TOML: Error while parsing key-value pair: cannot redefine existing "
        "integer 'a'");
    expect_error(oct_toml_parse, "a = \"\\u0000\"\n", "f:1: a text holds a NUL character");
    expect_error(oct_toml_parse, "a = 1\n[ = 2\n",
                 "f:2: not valid TOML: a name is missing after [");
    expect_error(oct_toml_parse, "[[\n", "f:1: not valid TOML: a name is missing after [");
    expect_error_bytes(oct_toml_parse, "a = 1\n[\0b]\n", 11,
                       "f:2: not valid TOML: a name is missing after [");
    expect_error_bytes(oct_toml_parse, "a = 1\0", 6, "f:1: not valid TOML: a control character");
    expect_error(oct_toml_parse, "# \x01\n", "f:1: not valid TOML: a control character");
    expect_error(oct_toml_parse, "a = '\x02'\n", "f:1: not valid TOML: a control character");
    expect_error(oct_yaml_parse, "a: 1\nb: 2\na: 3\n",
                 "f:3: a: a key is given twice; first on line 1");
    expect_error(oct_yaml_parse, "a: \"\\0\"\n", "f:1: a text holds a NUL character");
    expect_error(oct_yaml_parse, "a: *b\n", "f:1: *b: no such anchor before this line");
    expect_error(oct_yaml_parse, "a: &a [*a]\n", "f:1: *a: no such anchor before this line");
    expect_error(oct_yaml_parse, "a:\n  <<: 3\n", "f:2: `<<` merges tables only");
    expect_error(oct_yaml_parse, "a: !!python/object:os.system x\n",
                 "f:1: tags (!...) have no meaning here");
    expect_error(oct_yaml_parse, "[a, b]: 1\n", "f:1: a key must be a plain text");
    expect_error(oct_yaml_parse, "a: 99999999999999999999\n",
                 "f:1: an integer doesn't fit in 64 bits; got 99999999999999999999");
    expect_error(oct_yaml_parse, "a: 1\n---\nb: 2\n", "f: expected one document; got more");
    expect_error(oct_yaml_parse, "just a text\n", "f:1: expected a table of keys; got a string");
}

static void given_letters_beyond_ascii_outside_of_strings_they_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"args\xc3\x84 = 1\n", "a = 1\xc3\x84\n", "\xc3\x84 = 1\n",
                                        "a = [1,\xd2\x99]\n"};
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        const oct_value *root;
        oct_error err = {0};
        oct_arena *arena = oct_arena_create();
        assert_int_equal(oct_toml_parse("f", texts[i], strlen(texts[i]), arena, &root, &err),
                         OCT_INVALID);
        assert_memory_equal(err.message, "f:1: not valid TOML: ", 21);
        oct_arena_destroy(arena);
    }
    oct_arena *arena = oct_arena_create();
    const oct_value *root =
        parse_good(oct_toml_parse, "# \xc3\x84\na = \"\"\"x \\\n  \xc3\x84\"\"\"\n", arena);
    assert_string_equal(oct_value_find(root, "a")->string, "x \xc3\x84");
    oct_arena_destroy(arena);
}

static void given_broken_yaml_the_error_has_a_line(void **state) {
    (void)state;
    static const char *const texts[] = {"a: [1, 2\nb: 3\n", "a: 'open\n", "a: {b: 1\n", "\ta: 1\n",
                                        "a: b: c\n"};
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        const oct_value *root;
        oct_error err = {0};
        oct_arena *arena = oct_arena_create();
        assert_int_equal(oct_yaml_parse("f", texts[i], strlen(texts[i]), arena, &root, &err),
                         OCT_INVALID);
        assert_memory_equal(err.message, "f:", 2);
        assert_true(atoi(err.message + 2) >= 1);
        oct_arena_destroy(arena);
    }
}

static void put_n(oct_strbuf *b, const char *text, int n) {
    for (int i = 0; i < n; i++)
        oct_strbuf_puts(b, text);
}

static void given_depth_beyond_the_limit_it_is_refused_and_the_stack_holds(void **state) {
    (void)state;
    static const char *const openers[] = {"a = [", "x.y.", "[a.", "a = {k=", "a: [", "a: {k: "};
    for (size_t i = 0; i < OCT_COUNT(openers); i++) {
        bool toml = i < 4;
        oct_strbuf b = {0};
        if (i == 1 || i == 2) {
            put_n(&b, i == 2 ? "[" : "", 1);
            put_n(&b, "a.", 1 << 20);
            oct_strbuf_puts(&b, i == 2 ? "a]\n" : "a = 1\n");
        } else {
            oct_strbuf_puts(&b, toml ? "a = " : "a: ");
            put_n(&b, strchr(openers[i], '[') ? "[" : toml ? "{k=" : "{k: ", 1 << 16);
        }
        const oct_value *root;
        oct_error err = {0};
        oct_arena *arena = oct_arena_create();
        parse_function *parse = toml ? oct_toml_parse : oct_yaml_parse;
        assert_int_equal(parse("f", b.text, b.length, arena, &root, &err), OCT_INVALID);
        assert_memory_equal(err.message, "f:1: ", 5);
        oct_strbuf_free(&b);
        oct_arena_destroy(arena);
    }
}

static void given_the_deepest_legal_nesting_it_is_read(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    oct_strbuf b = {0};
    oct_strbuf_puts(&b, "a: ");
    put_n(&b, "[", OCT_VALUE_MAX_DEPTH - 1);
    put_n(&b, "]", OCT_VALUE_MAX_DEPTH - 1);
    assert_int_equal(parse_good(oct_yaml_parse, b.text, arena)->items.depth, OCT_VALUE_MAX_DEPTH);
    oct_strbuf_free(&b);
    oct_arena_destroy(arena);
}

static void given_dots_in_strings_and_comments_they_are_no_nesting(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    oct_strbuf b = {0};
    oct_strbuf_puts(&b, "# ");
    put_n(&b, ".", 200);
    oct_strbuf_puts(&b, "\na = \"\\\"");
    put_n(&b, ".", 200);
    oct_strbuf_puts(&b, "\"\nb = '''\n'");
    put_n(&b, ".", 200);
    oct_strbuf_puts(&b, "'''\nc = [");
    put_n(&b, "1.5, ", 100);
    oct_strbuf_puts(&b, "]\nd = [\n [ -1],\n [ # none\n ]]\n[[e]]\n[ f.\"g\" ]\n");
    const oct_value *root = parse_good(oct_toml_parse, b.text, arena);
    assert_int_equal(oct_value_find(root, "c")->items.n, 100);
    assert_int_equal(oct_value_find(root, "c")->line, 5);
    oct_strbuf_free(&b);
    oct_arena_destroy(arena);
}

static void given_an_alias_bomb_it_is_refused_before_it_unfolds(void **state) {
    (void)state;
    oct_strbuf b = {0};
    oct_strbuf_puts(&b, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 40; i++) {
        oct_strbuf_printf(&b, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            oct_strbuf_printf(&b, "%s*a%d", k ? ", " : "", i - 1);
        oct_strbuf_puts(&b, "]\n");
    }
    expect_error(oct_yaml_parse, b.text, "f:6: too many values; at most 262144");
    oct_strbuf_free(&b);
}

static void given_a_table_with_too_many_keys_it_is_refused(void **state) {
    (void)state;
    oct_strbuf b = {0};
    for (int i = 0; i <= OCT_VALUE_MAX_KEYS; i++)
        oct_strbuf_printf(&b, "k%d: 0\n", i);
    expect_error(oct_yaml_parse, b.text, "f:1025: too many keys in one table; at most 1024");
    oct_strbuf_free(&b);
}

static void given_a_refused_allocation_anywhere_the_readers_say_so_and_leak_nothing(void **state) {
    (void)state;
    static const char toml[] = "[a]\nb = [1, 'x', {c = 2.5}]\n";
    static const char yaml[] = "a: &a {b: [1, x]}\nc: {<<: *a, d: 'q'}\n";
    for (int which = 0; which < 2; which++) {
        parse_function *parse = which ? oct_yaml_parse : oct_toml_parse;
        const char *text = which ? yaml : toml;
        oct_status status = OCT_NO_MEMORY;
        size_t before = oct_alloc_live_bytes();
        for (int64_t n = 1; status; n++) {
            const oct_value *root;
            oct_error err = {0};
            oct_arena *arena = oct_arena_create();
            oct_alloc_fail_at(n);
            status = parse("f", text, strlen(text), arena, &root, &err);
            oct_alloc_fail_at(0);
            assert_true(!status || status == OCT_NO_MEMORY);
            oct_arena_destroy(arena);
            assert_int_equal(oct_alloc_live_bytes(), before);
            assert_true(n < 1000);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_toml_values_they_have_kinds_order_and_places),
        cmocka_unit_test(given_yaml_scalars_their_looks_decide_the_kind),
        cmocka_unit_test(given_anchors_aliases_and_merge_keys_they_are_resolved),
        cmocka_unit_test(given_empty_texts_the_root_is_an_empty_table),
        cmocka_unit_test(given_wrong_texts_one_line_says_where),
        cmocka_unit_test(given_letters_beyond_ascii_outside_of_strings_they_are_refused),
        cmocka_unit_test(given_broken_yaml_the_error_has_a_line),
        cmocka_unit_test(given_depth_beyond_the_limit_it_is_refused_and_the_stack_holds),
        cmocka_unit_test(given_the_deepest_legal_nesting_it_is_read),
        cmocka_unit_test(given_dots_in_strings_and_comments_they_are_no_nesting),
        cmocka_unit_test(given_an_alias_bomb_it_is_refused_before_it_unfolds),
        cmocka_unit_test(given_a_table_with_too_many_keys_it_is_refused),
        cmocka_unit_test(given_a_refused_allocation_anywhere_the_readers_say_so_and_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
