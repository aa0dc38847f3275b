/* CPU features: see cpu.h. A feature counts only when the operating system saves its registers
 * (XCR0), else the first context switch would lose them. */
#include "kernel/cpu.h"

#include <stdint.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"

static const char *const level_names[OCT_N_CPU_LEVELS] = {
    [OCT_CPU_REF] = "ref", [OCT_CPU_AVX2] = "avx2", [OCT_CPU_AVX512] = "avx512"};

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct cpuid_leaf {
    uint32_t eax, ebx, ecx, edx;
} cpuid_leaf;

enum {
    XCR0_AVX = 0x6,     /* XMM, YMM */
    XCR0_AVX512 = 0xe6, /* and opmask, the upper halves, ZMM 16-31 */
    XCR0_TILES = 0x60000,
    REQUEST_TILE_PERMISSION = 0x1023, /* ARCH_REQ_XCOMP_PERM */
    TILE_DATA = 18                    /* XFEATURE_XTILEDATA */
};

static cpuid_leaf cpuid(uint32_t leaf, uint32_t subleaf) {
    cpuid_leaf r = {0};
    __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}

static bool bit(uint32_t word, int n) {
    return word >> n & 1;
}

/* The state components that the operating system saves; needs CPUID.1:ECX.OSXSAVE. */
static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Whether vdpbf16ps runs as often as vpdpwssd, which does as many multiply-adds. A list, since what
 * is chosen decides the bits of a product, and a measurement could come out otherwise the next
 * time: AMD's CPUs do it (Zen 5: measured, bench/NOTES.md); Intel's do it a quarter as often. */
static bool has_full_rate_bf16(void) {
    cpuid_leaf vendor = cpuid(0, 0);
    return vendor.ebx == signature_AMD_ebx && vendor.ecx == signature_AMD_ecx &&
           vendor.edx == signature_AMD_edx;
}

oct_cpu_features oct_cpu_detect(void) {
    oct_cpu_features f = {.level = OCT_CPU_REF};
    cpuid_leaf one = cpuid(1, 0), seven = cpuid(7, 0);
    bool os_saves = bit(one.ecx, 27);
    uint64_t xcr0 = os_saves ? read_xcr0() : 0;

    bool fma = bit(one.ecx, 12), f16c = bit(one.ecx, 29), avx2 = bit(seven.ebx, 5);
    if (!fma || !f16c || !avx2 || (xcr0 & XCR0_AVX) != XCR0_AVX)
        return f;
    f.level = OCT_CPU_AVX2;

    bool foundation = bit(seven.ebx, 16), dq = bit(seven.ebx, 17);
    bool bw = bit(seven.ebx, 30), vl = bit(seven.ebx, 31);
    if (!foundation || !dq || !bw || !vl || (xcr0 & XCR0_AVX512) != XCR0_AVX512)
        return f;
    f.level = OCT_CPU_AVX512;
    bool gfni = bit(seven.ecx, 8);
    f.avx512_vbmi = gfni && bit(seven.ecx, 1);
    f.avx512_vnni = bit(seven.ecx, 11);

    f.avx512_bf16 = f.avx512_vbmi && f.avx512_vnni && bit(cpuid(7, 1).eax, 5);
    f.slow_bf16 = !has_full_rate_bf16();

    bool amx =
        gfni && bit(seven.edx, 22) && bit(seven.edx, 24) && (xcr0 & XCR0_TILES) == XCR0_TILES;
    f.amx_bf16 = amx && syscall(SYS_arch_prctl, REQUEST_TILE_PERMISSION, TILE_DATA) == 0;
    return f;
}

static char model_name[49] = "unknown x86-64 CPU";

static void read_model_name(void) {
    if (cpuid(0x80000000, 0).eax < 0x80000004)
        return;
    char brand[49] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        cpuid_leaf part = cpuid(0x80000002 + i, 0);
        memcpy(brand + 16 * i, &part, 16);
    }
    const char *start = brand + strspn(brand, " ");
    if (*start)
        memcpy(model_name, start, strlen(start) + 1);
}

const char *oct_cpu_model_name(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_model_name);
    return model_name;
}

#else

oct_cpu_features oct_cpu_detect(void) {
    return (oct_cpu_features){.level = OCT_CPU_REF};
}

const char *oct_cpu_model_name(void) {
    return "unknown CPU";
}

#endif

const char *oct_cpu_level_name(oct_cpu_level level) {
    return level_names[level];
}

/* What each name allows. */
static const struct {
    const char *name;
    oct_cpu_features allows;
} caps[] = {
    {"ref", {.level = OCT_CPU_REF}},
    {"avx2", {.level = OCT_CPU_AVX2}},
    {"avx512", {.level = OCT_CPU_AVX512, .avx512_vnni = true, .avx512_vbmi = true}},
    {"avx512bf16",
     {.level = OCT_CPU_AVX512, .avx512_vnni = true, .avx512_vbmi = true, .avx512_bf16 = true}},
    {"amx",
     {.level = OCT_CPU_AVX512,
      .avx512_vnni = true,
      .avx512_vbmi = true,
      .avx512_bf16 = true,
      .slow_bf16 = true,
      .amx_bf16 = true}},
};
enum { N_CAPS = OCT_COUNT(caps) };

/* Whether a CPU has what a name stands for beyond those below it; VNNI and VBMI come or not. */
static bool has_what_it_names(const oct_cpu_features *cpu, const oct_cpu_features *named) {
    if (named->amx_bf16)
        return cpu->amx_bf16;
    return cpu->level >= named->level && (cpu->avx512_bf16 || !named->avx512_bf16);
}

static const char *highest_cap(const oct_cpu_features *cpu) {
    int i = N_CAPS - 1;
    while (!has_what_it_names(cpu, &caps[i].allows))
        i--;
    return caps[i].name;
}

oct_status oct_cpu_cap(oct_cpu_features *features, const char *cap, oct_error *err) {
    if (cap == NULL || cap[0] == '\0')
        return OCT_OK;
    const char *names[N_CAPS];
    int found = -1;
    for (int i = 0; i < N_CAPS; i++) {
        names[i] = caps[i].name;
        if (strcmp(cap, names[i]) == 0)
            found = i;
    }
    if (found < 0) {
        const char *near = oct_nearest_name(cap, names, N_CAPS);
        return oct_fail(err, OCT_INVALID,
                        "OCTET_CPU: unknown kernel set; expected ref, avx2, avx512, avx512bf16 or "
                        "amx; got \"%.40s\"%s%s%s",
                        cap, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    }
    const oct_cpu_features *allows = &caps[found].allows;
    if (!has_what_it_names(features, allows))
        return oct_fail(err, OCT_INVALID,
                        "OCTET_CPU: this CPU (%s) lacks what the set needs; expected at most %s; "
                        "got %s",
                        oct_cpu_model_name(), highest_cap(features), cap);
    features->level = allows->level;
    features->avx512_vnni &= allows->avx512_vnni;
    features->avx512_vbmi &= allows->avx512_vbmi;
    features->avx512_bf16 &= allows->avx512_bf16;
    features->slow_bf16 &= allows->slow_bf16;
    features->amx_bf16 &= allows->amx_bf16;
    return OCT_OK;
}
