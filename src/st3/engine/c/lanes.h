// A vector of LANES floats, and the operations that need intrinsics on some instruction sets.
// Everything else uses the compiler's vector extensions.
#ifndef ST3_LANES_H
#define ST3_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

// build.py defines for each instruction set: its name ISA, LANES, and ACCUMULATORS, the vectors of sums that fit into
// registers. A plan depends on the last two alone, so "baseline" plans run on every architecture.
#if !defined(ISA) || !defined(LANES) || !defined(ACCUMULATORS)
#error "compile this file by build.py, which defines ISA, LANES and ACCUMULATORS"
#endif

#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef uint8_t bytes __attribute__((vector_size(LANES * 4)));
// For addresses that are only aligned to a float.
typedef float unaligned_vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t unaligned_ivec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float* p) { return *(const vec*)p; }
INLINE void store(float* p, vec v) { *(vec*)p = v; }
INLINE vec load_unaligned(const float* p) { return *(const unaligned_vec*)p; }
INLINE void store_unaligned(float* p, vec v) { *(unaligned_vec*)p = v; }
INLINE vec broadcast(float x) { return x - (vec){0}; }
INLINE vec apply_mask(vec v, ivec mask) { return (vec)((ivec)v & mask); }
INLINE vec blend(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }

// vec_max(bound, x) and vec_min(bound, x) return x where either argument is NaN.
#if defined(__AVX512F__)
INLINE vec vec_max(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vec vec_min(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vec gather(const float* p, ivec index) {
    return (vec)_mm512_i32gather_ps((__m512i)index, p, 4);
}
INLINE vec permute(vec v, ivec index) { return (vec)_mm512_permutexvar_ps((__m512i)index, (__m512)v); }
#elif defined(__AVX2__)
INLINE vec vec_max(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vec vec_min(vec a, vec b) { return (vec)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vec gather(const float* p, ivec index) { return (vec)_mm256_i32gather_ps(p, (__m256i)index, 4); }
INLINE vec permute(vec v, ivec index) { return (vec)_mm256_permutevar8x32_ps((__m256)v, (__m256i)index); }
#else
INLINE vec vec_max(vec a, vec b) { return blend(a > b, a, b); }
INLINE vec vec_min(vec a, vec b) { return blend(a < b, a, b); }
INLINE vec gather(const float* p, ivec index) {
    vec v;
    for (int l = 0; l < LANES; l++) v[l] = p[index[l]];
    return v;
}
INLINE vec permute(vec v, ivec index) {
    vec w;
    for (int l = 0; l < LANES; l++) w[l] = v[index[l]];
    return w;
}
#endif

// Keeps a vector in its register: otherwise the compiler reloads it for each use.
#if defined(__AVX512F__)
#define PIN_VECTOR(vector) __asm__("" : "+v"(vector))
#elif defined(__x86_64__)
#define PIN_VECTOR(vector) __asm__("" : "+x"(vector))
#elif defined(__aarch64__)
#define PIN_VECTOR(vector) __asm__("" : "+w"(vector))
#else
#define PIN_VECTOR(vector)
#endif

// `repeat` loads two or four floats and repeats them over the vector; `pick` broadcasts one of them. One load serves
// several weights.
#if defined(__AVX512F__)
INLINE vec repeat(const float* p, const int count) {
    if (count == 2) {
        double pair;
        memcpy(&pair, p, 8);
        return (vec)_mm512_set1_pd(pair);
    }
    return (vec)_mm512_broadcast_f32x4(_mm_loadu_ps(p));
}
#define PICK(v, which) ((vec)_mm512_permute_ps((__m512)(v), (which) * 0x55))
#elif defined(__AVX2__)
INLINE vec repeat(const float* p, const int count) {
    if (count == 2) {
        double pair;
        memcpy(&pair, p, 8);
        return (vec)_mm256_set1_pd(pair);
    }
    return (vec)_mm256_broadcast_ps((const __m128*)p);
}
#define PICK(v, which) ((vec)_mm256_permute_ps((__m256)(v), (which) * 0x55))
#endif

#if defined(__AVX2__)
INLINE vec pick(vec v, const int which) {
    switch (which) {
        case 0: return PICK(v, 0);
        case 1: return PICK(v, 1);
        case 2: return PICK(v, 2);
        default: return PICK(v, 3);
    }
}
#endif

#endif
