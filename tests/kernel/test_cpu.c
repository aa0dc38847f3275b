/* CPU levels, their caps and the kernel tables that follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cpu.h"
#include "kernel/gemm/tuning.h"
#include "kernel/select.h"

static void given_this_cpu_extensions_come_only_with_their_level(void **state) {
    (void)state;
    oct_cpu_features f = oct_cpu_detect();
    if (f.level < OCT_CPU_AVX512)
        assert_false(f.avx512_vnni || f.avx512_vbmi || f.avx512_bf16 || f.amx_bf16);
    if (f.avx512_bf16)
        assert_true(f.avx512_vnni && f.avx512_vbmi);
    assert_true(strlen(oct_cpu_model_name()) > 0);
    assert_string_equal(oct_cpu_level_name(OCT_CPU_AVX2), "avx2");
}

static const oct_cpu_features everything = {
    .level = OCT_CPU_AVX512,
    .avx512_vnni = true,
    .avx512_vbmi = true,
    .avx512_bf16 = true,
    .slow_bf16 = true,
    .amx_bf16 = true,
};

static void assert_everything(const oct_cpu_features *f) {
    assert_int_equal(f->level, OCT_CPU_AVX512);
    assert_true(f->avx512_vnni && f->avx512_vbmi && f->avx512_bf16 && f->slow_bf16 && f->amx_bf16);
}

static void given_no_cap_nothing_changes(void **state) {
    (void)state;
    oct_cpu_features all = everything;
    assert_int_equal(oct_cpu_cap(&all, NULL, NULL), OCT_OK);
    assert_int_equal(oct_cpu_cap(&all, "", NULL), OCT_OK);
    assert_int_equal(all.level, OCT_CPU_AVX512);
    assert_everything(&all);
}

static void given_a_cap_the_level_and_its_extensions_go(void **state) {
    (void)state;
    oct_cpu_features f = everything;
    assert_int_equal(oct_cpu_cap(&f, "amx", NULL), OCT_OK);
    assert_everything(&f);
    assert_int_equal(oct_cpu_cap(&f, "avx512bf16", NULL), OCT_OK);
    assert_true(f.avx512_vnni && f.avx512_vbmi && f.avx512_bf16);
    assert_false(f.slow_bf16 || f.amx_bf16); /* who asks for it gets it */
    assert_int_equal(oct_cpu_cap(&f, "avx512", NULL), OCT_OK);
    assert_true(f.avx512_vnni && f.avx512_vbmi);
    assert_false(f.avx512_bf16);
    assert_int_equal(oct_cpu_cap(&f, "avx2", NULL), OCT_OK);
    assert_int_equal(f.level, OCT_CPU_AVX2);
    assert_false(f.avx512_vnni || f.avx512_vbmi || f.amx_bf16);
    assert_int_equal(oct_cpu_cap(&f, "ref", NULL), OCT_OK);
    assert_int_equal(f.level, OCT_CPU_REF);
}

static void given_an_unknown_cap_the_choices_are_named(void **state) {
    (void)state;
    oct_cpu_features f = everything;
    oct_error err = {0};
    assert_int_equal(oct_cpu_cap(&f, "avx515", &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "OCTET_CPU"));
    assert_non_null(strstr(err.message, "ref, avx2, avx512, avx512bf16 or amx"));
    assert_non_null(strstr(err.message, "did you mean avx512?"));
    assert_int_equal(f.level, OCT_CPU_AVX512);
}

static void given_a_cap_above_this_cpu_it_is_refused(void **state) {
    (void)state;
    oct_cpu_features f = {.level = OCT_CPU_AVX2};
    oct_error err = {0};
    assert_int_equal(oct_cpu_cap(&f, "avx512", &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "at most avx2"));
    assert_int_equal(f.level, OCT_CPU_AVX2);
    f = (oct_cpu_features){.level = OCT_CPU_AVX512, .avx512_vnni = true, .avx512_vbmi = true};
    err = (oct_error){0};
    assert_int_equal(oct_cpu_cap(&f, "avx512bf16", &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "at most avx512;"));
    f.avx512_bf16 = true;
    err = (oct_error){0};
    assert_int_equal(oct_cpu_cap(&f, "amx", &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "at most avx512bf16;"));
}

/* Integers are faster where vdpbf16ps is slow; AMX is faster than either. */
static void given_slow_bf16_integers_are_chosen_unless_it_is_asked_for(void **state) {
    (void)state;
    oct_cpu_features f = oct_cpu_detect();
    if (!f.avx512_bf16) {
        printf("SKIPPED: this CPU lacks AVX512-BF16\n");
        return;
    }
    f.amx_bf16 = false;
    f.slow_bf16 = true;
    assert_string_equal(oct_kernels_select(f).name, "avx512+vnni");
    f.slow_bf16 = false;
    assert_string_equal(oct_kernels_select(f).name, "avx512+bf16");
    f.slow_bf16 = true;
    assert_int_equal(oct_cpu_cap(&f, "avx512bf16", NULL), OCT_OK);
    assert_string_equal(oct_kernels_select(f).name, "avx512+bf16");
}

static void given_any_features_the_table_is_whole(void **state) {
    (void)state;
    oct_cpu_features cpu = oct_cpu_detect();
    for (int level = OCT_CPU_REF; level <= (int)cpu.level; level++) {
        oct_kernels below = {0};
        if (level > OCT_CPU_REF)
            below = oct_kernels_select((oct_cpu_features){.level = (oct_cpu_level)(level - 1)});
        for (int extensions = 0; extensions < 16; extensions++) {
            bool top = level == OCT_CPU_AVX512;
            oct_cpu_features f = {.level = (oct_cpu_level)level,
                                  .avx512_vnni = top && extensions & 1,
                                  .avx512_vbmi = top && extensions & 2,
                                  .avx512_bf16 = top && (extensions & 3) == 3 && extensions & 8,
                                  .amx_bf16 = top && extensions & 4};
            oct_kernels kernels = oct_kernels_select(f);
            assert_non_null(kernels.quantize);
            assert_non_null(kernels.gemm);
            assert_non_null(kernels.elementwise);
            if (!(f.avx512_vnni && f.avx512_vbmi))
                assert_false(oct_gemm_has_fast(kernels.gemm));
            assert_int_equal(kernels.features.level, level);
            /* Each level has products and quantizers of its own. */
            assert_true(kernels.gemm != below.gemm);
            assert_true(kernels.quantize != below.quantize);
        }
    }
}

static void given_other_bits_the_table_has_another_name(void **state) {
    (void)state;
    oct_kernels plain = oct_kernels_select((oct_cpu_features){.level = OCT_CPU_REF});
    assert_string_equal(plain.name, "ref");
    oct_kernels all = oct_kernels_select(oct_cpu_detect());
    if (!oct_gemm_has_fast(all.gemm)) {
        printf("SKIPPED: this CPU has no fast product\n");
        return;
    }
    oct_cpu_features capped = oct_cpu_detect();
    capped.amx_bf16 = capped.avx512_bf16 = false;
    oct_kernels vnni = oct_kernels_select(capped);
    assert_string_equal(vnni.name, "avx512+vnni");
    assert_int_equal(all.gemm != vnni.gemm, strcmp(all.name, "avx512+vnni") != 0);
}

static void given_an_environment_variable_it_decides_the_table(void **state) {
    (void)state;
    oct_kernels before = *oct_kernels_current();
    oct_error err = {0};
    setenv("OCTET_CPU", "ref", 1);
    assert_int_equal(oct_kernels_init(&err), OCT_OK);
    assert_int_equal(oct_kernels_current()->features.level, OCT_CPU_REF);
    setenv("OCTET_CPU", "mmx", 1);
    assert_int_equal(oct_kernels_init(&err), OCT_INVALID);
    assert_non_null(strstr(err.message, "\"mmx\""));
    assert_int_equal(oct_kernels_current()->features.level, OCT_CPU_REF);
    unsetenv("OCTET_CPU");
    assert_int_equal(oct_kernels_init(NULL), OCT_OK);
    assert_int_equal(oct_kernels_current()->features.level, oct_cpu_detect().level);
    oct_kernels_use(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_this_cpu_extensions_come_only_with_their_level),
        cmocka_unit_test(given_no_cap_nothing_changes),
        cmocka_unit_test(given_a_cap_the_level_and_its_extensions_go),
        cmocka_unit_test(given_an_unknown_cap_the_choices_are_named),
        cmocka_unit_test(given_a_cap_above_this_cpu_it_is_refused),
        cmocka_unit_test(given_slow_bf16_integers_are_chosen_unless_it_is_asked_for),
        cmocka_unit_test(given_any_features_the_table_is_whole),
        cmocka_unit_test(given_other_bits_the_table_has_another_name),
        cmocka_unit_test(given_an_environment_variable_it_decides_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
