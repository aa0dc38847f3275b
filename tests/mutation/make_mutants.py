#!/usr/bin/env python3
"""Writes the mutants: a C file with a wrapper around each function under test, and the linker's options that put it in the way.

usage: make_mutants.py SOURCE_ROOT OUT.c OUT.options

Signatures come from the headers, so a new function has mutants by itself; SHAPES says what only people know: which memory a function
writes, from where, and which argument counts its rows. A wrapper gives what the function gives but in its mutants, one of which
OCTET_MUTANT names:

  zeros      its output, or its result, is zeros
  input      its output is its input
  last row   its last row is left out
  no X       argument X counts for nothing: another value is in its place

Functions are wrapped by the linker (--wrap), entries of kernel tables are replaced in the tables when the program starts.
"""
import pathlib
import re
import sys

PUBLIC = [("include/octet/format.h", "codecs"), ("include/octet/quantize.h", "quantizers"), ("include/octet/tensor.h", "base"),
          ("include/octet/status.h", "base"), ("include/octet/threads.h", "base"), ("src/checkpoint/checkpoint.h", "checkpoint"), ("include/octet/codec.h", "api"),
          ("include/octet/matrix.h", "api"), ("include/octet/product.h", "api")]
TABLES = [("src/kernel/quantize.h", "oct_quantize_kernels", "quantizers",
           ["quantize_kernels_ref", "quantize_kernels_avx2", "quantize_kernels_avx512"]),
          ("src/kernel/elementwise.h", "oct_elementwise_kernels", "elementwise",
           ["elementwise_kernels_ref", "elementwise_kernels_avx2", "elementwise_kernels_avx512"]),
          ("src/kernel/gemm/kernels.h", "oct_gemm_kernels", "products",
           ["gemm_kernels_ref", "gemm_kernels_avx2", "gemm_kernels_avx512", "gemm_kernels_vnni",
            "gemm_kernels_few_rows_avx512", "gemm_kernels_amx", "gemm_kernels_few_rows_amx"])]
AREAS = {"oct_codes_multiply": "products"}

# What an argument is when it counts for nothing, by its type or as "name: value".
INSTEAD = {"oct_dtype": "OCT_E4M3", "x_dtype": "OCT_F32", "c_dtype": "OCT_F32", "dtype": "OCT_F32", "oct_scale_mode": "OCT_SCALE_CEIL",
           "oct_overflow": "OCT_SATURATE", "oct_hif8_rounding": "OCT_HIF8_TA", "oct_accumulate": "OCT_OVERWRITE",
           "oct_rope_pairs": "OCT_ROPE_INTERLEAVED", "y_dtype": "OCT_F32", "oct_product_mode": "OCT_PRODUCT_AUTO",
           "float": "1.0f", "oct_error *": "NULL", "oct_checkpoint_group": "OCT_CHECKPOINT_MODEL",
           "label": "0", "bias": "NULL", "oct_status": "OCT_FAILED", "keep_latest_k": "0", "step": "OCT_CHECKPOINT_LATEST",
           "row": "0", "k": "0", "index": "0", "tensor_scale": "1"}


class Shape:
    """outs: (address, rows, bytes of a row, bytes between rows); source: (address, bytes); rows: what counts them, as the statement
    that leaves the last out needs it; no: more arguments that can count for nothing, as {label: statements}."""

    def __init__(self, outs=(), source=None, rows=None, no=None, less="{rows} -= 1;", view=""):
        self.outs, self.source, self.rows, self.no, self.less, self.view = outs, source, rows, no or {}, less, view


def whole(address, n_bytes):
    return address, "1", n_bytes, "0"


VIEW = "oct_matrix_view own_x = *x; x = &own_x;"
MX_ROWS = [("out->codes", "x->rows", "x->cols", "out->ld_codes"), ("out->scales", "x->rows", "BLOCKS(x->cols)", "out->ld_scales")]
MX_COLS = [("out->codes", "x->cols", "x->rows", "out->ld_codes"), ("out->scales", "x->cols", "BLOCKS(x->rows)", "out->ld_scales")]
MX_TILES = [MX_ROWS[0], ("out->scales", "BLOCKS(x->rows)", "BLOCKS(x->cols)", "out->ld_scales")]
OF_VIEW = ("x->data", "x->cols")


def renamed(outs, name):
    return [tuple(part.replace("out->", name + "->") for part in out) for out in outs]


def quantizer(outs):
    return Shape(outs, OF_VIEW, "own_x.rows", {"ld": "own_x.ld = x->cols;"}, view=VIEW)


def target(name="y", n="n"):
    return whole(name + ".data", "%s * WIDTH(%s.dtype)" % (n, name))


def elements(name, n="n"):
    return whole(name, n + " * 4")


SOURCE = "oct_operand own = *from->operand; oct_gemm_source own_from = *from; own_from.operand = &own; from = &own_from;"
PACK_NO = {"scales": "OWN.ld_scales = 0; OWN.scales = OWN.scaling == OCT_SCALING_MX ? (const void *)mx_ones : (const void *)ones;",
           "row": "own_from.row = 0;", "k": "own_from.k = 0;"}
CONTENTS = "oct_checkpoint_contents own = *contents; contents = &own;"
BLOCK = "oct_gemm_block own = *block; block = &own;"
SUMS = [("acc", "n_rows", "n_cols * 4", "ld_acc * 4")]
BLOCK_OUT = [("(block->c ? block->c : block->acc)", "block->n_rows", "block->n_cols * 4", "(block->c ? block->ld_c : block->ld_acc) * 4")]

QUANTIZER = "oct_quantizer own = *quantizer; oct_matrix own_x = *x; quantizer = &own; x = &own_x;"
CODED = "oct_coded own = *coded; coded = &own;"
CODED_NO = {field: "own.%s = %s;" % (field, value) for field, value in
            [("block_rows", "0"), ("block_cols", "0"), ("row_stride", "own.cols"), ("format", "OCT_E4M3")]}

SHAPES = {
    "oct_encode_array": Shape([whole("codes", "n")], ("x", "n"), "n", {field: "own.%s = 0;" % field for field in
                              ("rounding", "overflow", "counter")}, view="oct_codec own = *codec; codec = &own;"),
    "oct_decode_array": Shape([whole("y", "n * WIDTH(y_dtype)")], ("codes", "n"), "n"),
    "oct_matrix_quantize": Shape(rows="own_x.rows", view=QUANTIZER, no={
        **{field: "own.%s = 0;" % field for field in ("block_rows", "block_cols", "scale_mode", "target", "source", "quirks")},
        "row_stride": "own_x.row_stride = own_x.cols;", "col_stride": "own_x.col_stride = 1;"}),
    "oct_matrix_dequantize": Shape(view=CODED, no=CODED_NO),
    "oct_matrix_measure": Shape(view=CODED, no={"scales": "own.scales = (void *)ones;"}),
    "oct_multiply": Shape(rows="n", view="oct_product own = *products; if (n == 1) products = &own;", no={
        "bias": "own.bias = NULL;", "accumulate": "own.accumulate = 0;"}),
    "oct_quantizer_scales": None,  # without which a test has no strides
    "oct_mx_quantize": Shape([whole("codes", "rows * cols"), whole("scales", "rows * BLOCKS(cols)")], ("x", "rows * cols"), "rows"),
    "oct_mx_quantize_transposed": Shape([whole("codes", "rows * cols"), whole("scales", "cols * BLOCKS(rows)")], ("x", "rows * cols"), "rows"),
    "oct_mx_dequantize": Shape([elements("y", "rows * cols")], ("codes", "rows * cols"), "rows", {"scales": "scales = mx_ones;"}),
    "oct_tensor_quantize": Shape([whole("codes", "rows * cols"), elements("scale", "1")], ("x", "rows * cols"), "rows"),
    "oct_tensor_dequantize": Shape([elements("y", "rows * cols")], ("codes", "rows * cols"), "rows"),
    "oct_codes_multiply": Shape([elements("c", "M * N")], ("a->codes", "M * K"), "M",
                                {"scales of a": "own_a.tensor_scale = 1; if (a->mx_scales) own_a.mx_scales = mx_ones;",
                                 "scales of b": "own_b.tensor_scale = 1; if (b->mx_scales) own_b.mx_scales = mx_ones;"},
                                view="oct_codes own_a = *a, own_b = *b; a = &own_a; b = &own_b;"),
    "mx_rows": quantizer(MX_ROWS), "mx_cols": quantizer(MX_COLS), "mx_tiles": quantizer(MX_TILES),
    "mx_both": quantizer(renamed(MX_ROWS, "by_rows") + renamed(MX_COLS, "by_cols")),
    "amax": Shape(rows="own_x.rows", no={"ld": "own_x.ld = x->cols;"}, view=VIEW),
    "scaled": Shape([("codes", "x->rows", "x->cols", "ld_codes")], OF_VIEW, "own_x.rows", {"ld": "own_x.ld = x->cols;"}, view=VIEW),
    "decode_scaled": Shape([("y", "rows", "cols * 4", "ld_y * 4")], ("codes", "cols"), "rows", {"ld_codes": "ld_codes = cols;"}),
    "f32_to_bf16": Shape([whole("y", "n * 2")], ("x", "n * 2"), "n"),
    "bf16_to_f32": Shape([elements("y")], ("x", "n * 2"), "n"),
    "pack_a": Shape([whole("panel", "own_from.kc * (int64_t)gemm_table->a_bytes_per_k + (int64_t)gemm_table->a_bytes_fixed")],
                    ("own.data", "own_from.kc"), "own_from.n_rows", PACK_NO, view=SOURCE),
    "pack_b": Shape([whole("panel", "own_from.kc * (int64_t)gemm_table->b_bytes_per_k + (int64_t)gemm_table->b_bytes_fixed")],
                    ("own.data", "own_from.kc"), "own_from.n_rows", PACK_NO, view=SOURCE),
    "multiply": Shape(SUMS, ("a_panel", "4"), "n_rows"),
    "multiply_block": Shape(BLOCK_OUT, ("block->a", "4"), "own.n_rows",
                            {"accumulate": "own.accumulate = OCT_OVERWRITE;", "c_accumulate": "own.c_accumulate = OCT_OVERWRITE;",
                             "next": "own.next.n_rows = 0;"}, view=BLOCK),
    "store": Shape([("c", "n_rows", "n_cols * WIDTH(c_dtype)", "ld_c * WIDTH(c_dtype)")], ("acc", "n_cols * 2"), "n_rows"),
    "cast": Shape([target()], ("x.data", "n * 2"), "n"), "add": Shape([target()], ("a.data", "n * 2"), "n"),
    "scale": Shape([target()], ("x.data", "n * 2"), "n"), "exp": Shape([elements("y")], ("x", "n * 4"), "n"),
    "swiglu": Shape([target()], ("gate.data", "n * 2"), "n"),
    "swiglu_backward": Shape([target("dgate"), target("dup")], ("dy.data", "n * 2"), "n"),
    "rmsnorm": Shape([target("y", "D")], ("x.data", "D * 2"), "D"),
    "rmsnorm_backward": Shape([("dx.data", "dx.data ? 1 : 0", "D * WIDTH(dx.dtype)", "0"), ("dweight", "dweight ? 1 : 0", "D * 4", "0")],
                              ("dy.data", "D * 2"), "D"),
    "rope": Shape([target("x", "dims")], None, "dims", less="{rows} -= 2;"),
    "sum_of_squares": Shape(rows="n"), "dot": Shape(rows="n"), "max": Shape(rows="n"), "sum_exp": Shape(rows="n"),
    "softmax_block": Shape([elements("x")], None, "n", {"old max": "*max = -__builtin_inff();", "old sum": "*sum = 0;"}),
    "softmax_backward": Shape([elements("dp")], ("scores", "n * 4"), "n"),
    "cross_entropy_gradient": Shape([target("x")], None, "n"),
    "adam": Shape([elements("value"), elements("m"), elements("v")], ("grad", "n * 4"), "n",
                  {field: "own.%s = %d;" % (field, value) for field, value in
                   [("grad_scale", 1), ("l2", 0), ("keep", 1), ("beta2", 0), ("new1", 1), ("new2", 1), ("step_size", 1),
                    ("inv_sqrt_bias2", 1), ("eps", 0)]}, view="oct_adam_factors own = *factors; factors = &own;"),
    "oct_checkpoint_save": Shape(rows="own.n_tensors[OCT_CHECKPOINT_MODEL]", view=CONTENTS, no={
        "last optimizer tensor": "own.n_tensors[OCT_CHECKPOINT_OPTIMIZER] -= own.n_tensors[OCT_CHECKPOINT_OPTIMIZER] > 0;",
        "contents.step": "own.step = 0;", "contents.state_json": 'own.state_json = "{}";', "contents.config_text": "own.config_text = \"\";",
        "contents.config": "own.config_name = own.config_text = NULL;", "contents.kernel_set": 'own.kernel_set = "ref";',
        "contents.gemm": 'own.gemm = "exact";', "contents.max_shard_bytes": "own.max_shard_bytes = 0;",
        "last row of a tensor": "less_rows(&own);", "data of a tensor": "other_data(&own);"}),
    "oct_checkpoint_copy": Shape([whole("to->data", "(int64_t)oct_tensor_bytes(to)")], None, None, {
        "last row": "return without_last_row(checkpoint, group, name, to, err);",
        "name": "if (oct_checkpoint_count(checkpoint, group) > 0) name = oct_checkpoint_get(checkpoint, group, 0)->name;"}),
    "oct_checkpoint_copy_rows": Shape([("to", "n_rows > 0 && row >= 0 ? 1 : 0", "n_rows", "0")], None, "n_rows", {
        "name": "if (oct_checkpoint_count(checkpoint, group) > 0) name = oct_checkpoint_get(checkpoint, group, 0)->name;"}),
    "oct_checkpoint_tensor_find": Shape(no={"name": "return oct_checkpoint_get(checkpoint, group, 0);"}),
    "oct_checkpoint_count": Shape(no={"last": "return __real_oct_checkpoint_count(checkpoint, group) - 1;"}),
    "oct_fail": None,  # FAIL
    "oct_checkpoint_close": None,
}
# Arguments whose value can't change what a test could see, or that need memory which isn't there.
EQUIVALENT = {("multiply_block", "output"),
              # of at most one panel of rows of A: the first row is 0
              ("gemm_kernels_few_rows_avx512.pack_a", "row"), ("gemm_kernels_few_rows_amx.pack_a", "row")}
NUMBER = re.compile(r"u?int(?:\d+_t)?|float|size_t|oct_status|oct_dtype")
SIZES = {"rows", "cols", "n_rows", "n", "n_total", "kc", "M", "N", "K", "D", "dims", "n_cols"}


class Function:
    def __init__(self, result, name, params, area):
        self.result, self.name, self.area = result.strip(), name, area
        self.params = []
        for param in params.split(","):
            found = re.match(r"\s*(.*?[\s*])(\w+)(?:\[\w*\])?\s*$", param)
            if found and param.strip() != "void":
                self.params.append((found[1].strip(), found[2]))
        self.signature = params.strip()

    def parts(self):
        """(kind, statements) of each mutant; `GO` is the call of the function itself, `RESULT` its result."""
        shape = SHAPES.get(self.name, Shape())
        first_type, first = self.params[0] if self.params else (None, None)
        nothing = "return;" if self.result == "void" else "return %s;" % ("NULL" if "*" in self.result else "(%s){0}" % self.result)
        if shape.outs:
            yield "zeros", "GO; %s RESULT;" % " ".join("set_zeros(%s, %s, (size_t)(%s), (size_t)(%s));" % out for out in shape.outs)
            if shape.source:
                yield "input", "GO; set_rows(%s, %s, (size_t)(%s), (size_t)(%s), %s, (size_t)(%s)); RESULT;" % (shape.outs[0] + shape.source)
        else:
            yield "zeros", nothing
        if not shape.outs and NUMBER.fullmatch(self.result) and first and NUMBER.fullmatch(first_type):
            yield "input", "return (%s)%s;" % (self.result, first)
        if shape.rows:
            yield "last row", "if (%s <= 1)\n            %s %s GO; RESULT;" % (shape.rows, nothing, shape.less.format(rows=shape.rows))
        for kind, name in self.params:
            value = INSTEAD.get(name) or INSTEAD.get(kind)
            if value and name not in SIZES and name not in shape.no and (self.name, name) not in EQUIVALENT:
                yield "no " + name, "%s = %s; GO; RESULT;" % (name, value)
        for label, statements in shape.no.items():
            yield "no " + label, statements.replace("OWN", "own") + " GO; RESULT;"

    def wrapper(self, first_kind, of_table):
        shape = SHAPES.get(self.name, Shape())
        name = "wrapped_" + self.name if of_table else "__wrap_" + self.name
        real = "real_" + self.name if of_table else "__real_" + self.name
        call = "%s(%s)" % (real, ", ".join(param for _, param in self.params))
        void = self.result == "void"
        lines = ["typedef %s %s_type(%s);" % (self.result, name, self.signature),
                 "static %s_type *%s;" % (name, real) if of_table else "%s_type %s, %s;" % (name, real, name),
                 "%s%s %s(%s) {" % ("static " if of_table else "", self.result, name, self.signature),
                 "    if (mutant < %d || mutant >= %d)" % (first_kind, first_kind + len(list(self.parts()))),
                 "        return %s;" % call, "    " + shape.view,
                 "    switch (mutant - %d) {" % first_kind]
        go = call + ";" if void else "%s result = %s;" % (self.result, call)
        if self.result == "oct_status":
            go += " if (result != OCT_OK) return result;"
        for i, (_, statements) in enumerate(self.parts()):
            code = statements.replace("GO;", go).replace("RESULT;", "return;" if void else "return result;")
            lines += ["    case %d: {" % i, "        " + re.sub("; (?=\\S)", ";\n        ", code), "    }"]
        lines += ["    }", "    abort();", "}"]
        return "\n".join(line for line in lines if line.strip())


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"^#.*?$|\bOCT_API\b", " ", text, flags=re.M)


def public_functions(text, area):
    text = re.sub(r"\{[^{}]*\}", "{}", without_comments(text).replace('extern "C" {', ""))
    for statement in text.split(";"):
        found = re.fullmatch(r"\s*(?:\}\s*)*((?:const )?\w+ (?:\*)?)(oct_\w+)\((.*?)\)\s*(?:__attribute__.*)?", statement, re.S)
        if found and "typedef" not in statement and SHAPES.get(found[2], 0) is not None:
            yield Function(found[1], found[2], re.sub(r"\s+", " ", found[3]), AREAS.get(found[2], area))


def table_entries(text, struct, area):
    body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (struct, struct), without_comments(text), re.S)[1]
    for result, name, params in re.findall(r"(\w+) \(\*(\w+)\)\((.*?)\);", body, re.S):
        yield Function(result, name, re.sub(r"\s+", " ", params), area)


HEAD = """/* Written by make_mutants.py. */
#include "mutants.h"

#define BLOCKS(n) (((n) + 31) / 32)
#define WIDTH(dtype) ((dtype) == OCT_F32 ? 4 : 2)
"""

# The one function with open arguments.
FAIL_KINDS = ["zeros", "no err", "no format"]
FAIL = """
oct_status __real_oct_fail(oct_error *err, oct_status status, const char *format, ...);
oct_status __wrap_oct_fail(oct_error *err, oct_status status, const char *format, ...);
oct_status __wrap_oct_fail(oct_error *err, oct_status status, const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        abort();
    va_end(args);
    __real_oct_fail(mutant == FIRST + 1 ? NULL : err, status, "%s", mutant == FIRST + 2 ? "no" : text);
    free(text);
    return mutant == FIRST ? OCT_OK : status;
}
"""


def main():
    root, out, options = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    code, rows, wraps, mutant = [HEAD], [], [], 0
    for path, area in PUBLIC:
        for function in public_functions((root / path).read_text(), area):
            code.append(function.wrapper(mutant, False))
            wraps.append("-Wl,--wrap=" + function.name)
            for kind, _ in function.parts():
                rows.append('{"%s", "%s", "%s", %d, NULL, NULL, NULL, NULL},' % (function.area, function.name, kind, mutant))
                mutant += 1
    code.append(FAIL.replace("FIRST", str(mutant)))
    wraps.append("-Wl,--wrap=oct_fail")
    for kind in FAIL_KINDS:
        rows.append('{"base", "oct_fail", "%s", %d, NULL, NULL, NULL, NULL},' % (kind, mutant))
        mutant += 1
    for path, struct, area, tables in TABLES:
        for name in tables:
            code.append("extern const %s oct_%s __attribute__((weak));" % (struct, name))
        for function in table_entries((root / path).read_text(), struct, area):
            code.append(function.wrapper(mutant, True))
            for kind, _ in function.parts():
                for name in tables:
                    if (name + "." + function.name, kind[len("no "):]) in EQUIVALENT:
                        continue
                    rows.append('{"%s", "%s.%s", "%s", %d, &oct_%s, (void **)&oct_%s.%s, (void *)wrapped_%s, (void **)&real_%s},' % (
                        area, name, function.name, kind, mutant, name, name, function.name, function.name, function.name))
                mutant += 1
    code += ["const mutation mutations[] = {"] + ["    " + row for row in rows] + ["};",
             "const size_t n_mutations = sizeof mutations / sizeof mutations[0];", ""]
    pathlib.Path(out).write_text("\n".join(code))
    pathlib.Path(options).write_text("\n".join(wraps) + "\n")


if __name__ == "__main__":
    main()
