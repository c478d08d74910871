// What the library consists of: the structures of a plan as text, and the kernels for this processor.
#include "library.h"

#include <stddef.h>
#include <string.h>

// ---------------------------------------------------------------- structures

#define TEXT_P(S, type, name) "p " #name ","
#define TEXT_L(S, name) "l " #name ","
#define TEXT_I(S, name) "i " #name ","
#define TEXT_U(S, name) "u " #name ","
#define TEXT_F(S, name) "f " #name ","
#define TEXT_N(S, type, name) #type " " #name ","
#define TEXT(S) #S ":" FIELDS_##S(S, TEXT_P, TEXT_L, TEXT_I, TEXT_U, TEXT_F, TEXT_N) "\n"
#define TEXT_KIND(kind, S) #S ","
#define TEXT_FUNCTION(kind, name) #name ","

#define TEXT_VALUE_(value) #value
#define TEXT_VALUE(value) TEXT_VALUE_(value)
#define TEXT_NUMBER(name) #name "=" TEXT_VALUE(name) ","

// One line per structure, "name:type field,...", then the kinds of steps and the activations in the order of their
// numbers, and the numbers that Python needs.
PUBLIC const char* st3_schema(void) {
    return ELEMENTS(TEXT) ARGUMENTS(TEXT) RECORDS(TEXT) "kinds:" KINDS_OF(TEXT_KIND)
        "\nfunctions:" FUNCTIONS(TEXT_FUNCTION) "\nnumbers:" NUMBERS(TEXT_NUMBER) FILE_NUMBERS(TEXT_NUMBER) "\n";
}

#define POINTER_P(S, type, name) offsetof(S, name),
#define POINTER_N(S, type, name) offsetof(S, name) + offsetof(Epilogue, residual), offsetof(S, name) + offsetof(Epilogue, mask),
#define NONE(...)
#define POINTERS(kind, S) \
    static const int32_t pointers_of_##S[] = {FIELDS_##S(S, POINTER_P, NONE, NONE, NONE, NONE, POINTER_N) -1};
KINDS_OF(POINTERS)

#define LAYOUT(kind, S) {sizeof(S), pointers_of_##S},
const Layout st3_layouts[KINDS] = {KINDS_OF(LAYOUT)};

// ---------------------------------------------------------------- kernels

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
