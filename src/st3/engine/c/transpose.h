// Converts rows of a matrix to lanes and back: LANES vectors at a time, transposed in registers.
#ifndef ST3_TRANSPOSE_H
#define ST3_TRANSPOSE_H

#include "lanes.h"
#include "plan.h"

#if defined(__clang__)
INLINE vec shuffle_pair(vec a, vec b, ivec index) {
    vec v;
    for (int l = 0; l < LANES; l++) v[l] = index[l] < LANES ? a[index[l]] : b[index[l] - LANES];
    return v;
}
#else
INLINE vec shuffle_pair(vec a, vec b, ivec index) { return __builtin_shuffle(a, b, index); }
#endif

// For each pair of vectors `apart` from each other, swap the lanes that are `apart` from each other.
INLINE void swap_lanes(vec v[LANES], const int apart) {
    ivec lower, upper;
    for (int l = 0; l < LANES; l++) {
        lower[l] = l & apart ? LANES + l - apart : l;
        upper[l] = l & apart ? LANES + l : l + apart;
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) {
        if (i & apart) continue;
        vec a = v[i], b = v[i + apart];
        v[i] = shuffle_pair(a, b, lower);
        v[i + apart] = shuffle_pair(a, b, upper);
    }
}

INLINE void transpose(vec v[LANES]) {
    swap_lanes(v, 1);
    swap_lanes(v, 2);
#if LANES > 4
    swap_lanes(v, 4);
#endif
#if LANES > 8
    swap_lanes(v, 8);
#endif
}

// Tasks: LANES columns of the matrix each.
static void run_transpose(const void* arguments, int32_t task, const Context* context) {
    const Transpose* t = arguments;
    const float* in = t->in_slot < 0 ? t->in : context->slots[t->in_slot];
    float* out = t->out_slot < 0 ? t->out : context->slots[t->out_slot];
    int32_t first = task * LANES, count = t->columns - first < LANES ? t->columns - first : LANES;
    for (int32_t x = 0; x < t->width; x++) {
        vec v[LANES];
        if (t->to_rows) {
            const float* from = in + first * t->plane + x * LANES;
            for (int32_t i = 0; i < LANES; i++) v[i] = i < count ? load(from + i * t->plane) : (vec){0};
            transpose(v);
            for (int32_t l = 0; l < LANES; l++) {
                int64_t row = (int64_t)l * t->width + x;
                if (row >= t->rows) break;
                float* to = out + row * t->columns + first;
                if (count == LANES) store_unaligned(to, v[l]);
                else memcpy(to, &v[l], count * 4);
            }
        } else {
            for (int32_t l = 0; l < LANES; l++) {
                int64_t row = (int64_t)l * t->width + x;
                const float* from = in + row * t->columns + first;
                v[l] = (vec){0};
                if (row >= t->rows) continue;
                if (count == LANES) v[l] = load_unaligned(from);
                else memcpy(&v[l], from, count * 4);
            }
            transpose(v);
            for (int32_t i = 0; i < count; i++) store(out + (first + i) * t->plane + x * LANES, v[i]);
        }
    }
}

#endif
