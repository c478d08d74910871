// Selects the kernels for this processor.
#include <string.h>

#include "session.h"

extern const Kernels st3_kernels_baseline;
#if defined(__x86_64__)
extern const Kernels st3_kernels_avx2, st3_kernels_avx512;
#elif defined(__aarch64__)
extern const Kernels st3_kernels_neon;
#endif

// `wanted` is a name, or NULL for the best. Returns NULL if it is not compiled or this processor does not support it.
const Kernels* st3_kernels(const char* wanted) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    if (avx512 && (!wanted || !strcmp(wanted, "avx512"))) return &st3_kernels_avx512;
    if (avx2 && (!wanted || !strcmp(wanted, "avx2"))) return &st3_kernels_avx2;
#elif defined(__aarch64__)
    if (!wanted || !strcmp(wanted, "neon")) return &st3_kernels_neon;  // every AArch64 processor has it
#endif
    if (!wanted || !strcmp(wanted, "baseline")) return &st3_kernels_baseline;
    return 0;
}

const char* st3_kernels_name(const Kernels* kernels) { return kernels->name; }
int32_t st3_kernels_lanes(const Kernels* kernels) { return kernels->lanes; }
const int32_t* st3_kernels_variants(const Kernels* kernels, int32_t* count) {
    *count = kernels->variant_count;
    return kernels->variants;
}
