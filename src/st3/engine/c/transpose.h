// Converts rows of a matrix to lanes and back: LANES vectors at a time, transposed in registers.
#ifndef ST3_TRANSPOSE_H
#define ST3_TRANSPOSE_H

#include "lanes.h"
#include "plan.h"

// X(lane, apart) for every lane; both compilers want the lanes of a shuffle as constants.
#if LANES == 4
#define EACH_LANE(X, apart) X(0, apart), X(1, apart), X(2, apart), X(3, apart)
#else
#define FOUR_LANES(X, l, apart) X(l, apart), X(l + 1, apart), X(l + 2, apart), X(l + 3, apart)
#if LANES == 8
#define EACH_LANE(X, apart) FOUR_LANES(X, 0, apart), FOUR_LANES(X, 4, apart)
#else
#define EACH_LANE(X, apart) \
    FOUR_LANES(X, 0, apart), FOUR_LANES(X, 4, apart), FOUR_LANES(X, 8, apart), FOUR_LANES(X, 12, apart)
#endif
#endif
#define LOWER(l, apart) ((l) & (apart) ? LANES + (l) - (apart) : (l))
#define UPPER(l, apart) ((l) & (apart) ? LANES + (l) : (l) + (apart))

#if defined(__clang__)
#define SHUFFLE(a, b, lane, apart) __builtin_shufflevector(a, b, EACH_LANE(lane, apart))
#else
#define SHUFFLE(a, b, lane, apart) __builtin_shuffle(a, b, (ivec){EACH_LANE(lane, apart)})
#endif

// For each pair of vectors `apart` from each other, swap the lanes that are `apart` from each other.
#define SWAP_LANES(v, apart)                                         \
    UNROLL for (int i = 0; i < LANES; i++) {                         \
        if (i & (apart)) continue;                                   \
        vec a = v[i], b = v[i + (apart)];                            \
        v[i] = SHUFFLE(a, b, LOWER, apart);                          \
        v[i + (apart)] = SHUFFLE(a, b, UPPER, apart);                \
    }

INLINE void transpose(vec v[LANES]) {
    SWAP_LANES(v, 1)
    SWAP_LANES(v, 2)
#if LANES > 4
    SWAP_LANES(v, 4)
#endif
#if LANES > 8
    SWAP_LANES(v, 8)
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
