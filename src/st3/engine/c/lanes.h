// One vector of LANES floats, and the few operations whose best form differs between instruction sets.
// Everything else is written with the compiler's vector extensions.
#ifndef ST3_LANES_H
#define ST3_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#define ACCUMULATORS 28  // of 32 registers
#elif defined(__AVX2__)
#define LANES 8
#define ACCUMULATORS 14  // of 16 registers
#elif defined(__aarch64__)
#define LANES 4
#define ACCUMULATORS 28
#else
#define LANES 4
#define ACCUMULATORS 14
#endif

#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
// for addresses that are only aligned like a float
typedef float loose_vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t loose_ivec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define UNROLL _Pragma("GCC unroll 32")
#define ALWAYS static inline __attribute__((always_inline))

ALWAYS vec load(const float* p) { return *(const vec*)p; }
ALWAYS void store(float* p, vec v) { *(vec*)p = v; }
ALWAYS vec load_loose(const float* p) { return *(const loose_vec*)p; }
ALWAYS void store_loose(float* p, vec v) { *(loose_vec*)p = v; }
ALWAYS vec spread(float x) { return x - (vec){0}; }
ALWAYS vec keep(vec v, ivec mask) { return (vec)((ivec)v & mask); }
ALWAYS vec choose(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }

// larger(bound, x) and smaller(bound, x): the second argument where one of them is not a number
#if defined(__AVX512F__)
ALWAYS vec larger(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
ALWAYS vec smaller(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }
ALWAYS vec gather(const float* p, ivec index) {
    return (vec)_mm512_i32gather_ps((__m512i)index, p, 4);
}
ALWAYS vec permute(vec v, ivec index) { return (vec)_mm512_permutexvar_ps((__m512i)index, (__m512)v); }
#elif defined(__AVX2__)
ALWAYS vec larger(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
ALWAYS vec smaller(vec a, vec b) { return (vec)_mm256_min_ps((__m256)a, (__m256)b); }
ALWAYS vec gather(const float* p, ivec index) { return (vec)_mm256_i32gather_ps(p, (__m256i)index, 4); }
ALWAYS vec permute(vec v, ivec index) { return (vec)_mm256_permutevar8x32_ps((__m256)v, (__m256i)index); }
#else
ALWAYS vec larger(vec a, vec b) { return choose(a > b, a, b); }
ALWAYS vec smaller(vec a, vec b) { return choose(a < b, a, b); }
ALWAYS vec gather(const float* p, ivec index) {
    vec v;
    for (int l = 0; l < LANES; l++) v[l] = p[index[l]];
    return v;
}
ALWAYS vec permute(vec v, ivec index) {
    vec w;
    for (int l = 0; l < LANES; l++) w[l] = v[index[l]];
    return w;
}
#endif

// A vector that stays in its register: left alone, the compiler loads it again for each of its few uses.
#if defined(__AVX512F__)
#define HELD(vector) __asm__("" : "+v"(vector))
#elif defined(__x86_64__)
#define HELD(vector) __asm__("" : "+x"(vector))
#elif defined(__aarch64__)
#define HELD(vector) __asm__("" : "+w"(vector))
#else
#define HELD(vector)
#endif

// Two or four numbers, over and over, and one of them in all lanes: one load serves several weights.
#if defined(__AVX512F__)
ALWAYS vec repeat(const float* p, const int count) {
    if (count == 2) {
        double pair;
        memcpy(&pair, p, 8);
        return (vec)_mm512_set1_pd(pair);
    }
    return (vec)_mm512_broadcast_f32x4(_mm_loadu_ps(p));
}
#define PICK(v, which) ((vec)_mm512_permute_ps((__m512)(v), (which) * 0x55))
#elif defined(__AVX2__)
ALWAYS vec repeat(const float* p, const int count) {
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
ALWAYS vec pick(vec v, const int which) {
    switch (which) {
        case 0: return PICK(v, 0);
        case 1: return PICK(v, 1);
        case 2: return PICK(v, 2);
        default: return PICK(v, 3);
    }
}
#endif

#endif
