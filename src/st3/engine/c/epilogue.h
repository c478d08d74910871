// What follows a sum: residual, clamp, activation, mask, in this order.
#ifndef ST3_EPILOGUE_H
#define ST3_EPILOGUE_H

#include "lanes.h"
#include "plan.h"

// x = n ln 2 + r; `rest` is e^r - 1, to within 2 units in the last place of e^r, and of itself where n is 0.
typedef struct {
    vec power, rest;  // 2^n and e^r - 1
} Exponent;

INLINE Exponent split(vec x) {
    vec scaled = x * 1.44269504f;
    ivec n = __builtin_convertvector(scaled + blend(scaled < 0, broadcast(-0.5f), broadcast(0.5f)), ivec);
    vec whole = __builtin_convertvector(n, vec);
    vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec p = broadcast(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (Exponent){(vec)((n + 127) << 23), p * r * r + r};
}

// e^x = 2^n times a polynomial of the remainder; within 2 units in the last place.
static vec exponential(vec x) {
    Exponent e = split(vec_min(broadcast(88.0f), vec_max(broadcast(-87.0f), x)));
    return (e.rest + 1.0f) * e.power;
}

static vec sigmoid(vec x) { return 1.0f / (1.0f + exponential(-x)); }

// tanh |x| = m / (m + 2) with m = e^(2 |x|) - 1, which keeps its digits near 0. Beyond 10 the result is 1.
static vec hyperbolic_tangent(vec x) {
    ivec sign = (ivec)x & INT32_MIN;
    Exponent e = split(vec_min(broadcast(20.0f), 2.0f * (vec)((ivec)x ^ sign)));
    vec m = e.power * e.rest + (e.power - 1.0f);
    return (vec)((ivec)(m / (m + 2.0f)) | sign);
}

// erf as a polynomial of degree 5 in 1 / (1 + p |x|) (Abramowitz and Stegun 7.1.26, error below 2e-7).
static vec error_function(vec x) {
    vec size = blend(x < 0, -x, x);
    vec t = 1.0f / (1.0f + 0.3275911f * size);
    vec p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    vec y = 1.0f - p * exponential(-size * size);
    return blend(x < 0, -y, y);
}

// e^x - 1, which keeps its digits near 0.
static vec exponential_minus_one(vec x) {
    Exponent e = split(vec_min(broadcast(88.0f), vec_max(broadcast(-87.0f), x)));
    return e.power * e.rest + (e.power - 1.0f);
}

// The low half of `function` is its number, the high half the bits of its parameter.
INLINE float parameter_of(int64_t function) {
    int32_t bits = (int32_t)(function >> 32);
    float parameter;
    memcpy(&parameter, &bits, 4);
    return parameter;
}

static __attribute__((noinline)) vec activate(vec x, int64_t function) {
    switch ((int32_t)function) {
        case GELU:
            return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case GELU_TANH:
            return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
        case SILU:
            return x * sigmoid(x);
        case HARDSWISH:
            return x * vec_min(broadcast(1.0f), vec_max(broadcast(0.0f), x * (1.0f / 6) + 0.5f));
        case HARDSIGMOID:
            return vec_min(broadcast(1.0f), vec_max(broadcast(0.0f), x * (1.0f / 6) + 0.5f));
        case SIGMOID:
            return sigmoid(x);
        case TANH:
            return hyperbolic_tangent(x);
        case LEAKY_RELU:
            return blend(x < 0, x * parameter_of(function), x);
        case ELU:
            return blend(x < 0, parameter_of(function) * exponential_minus_one(x), x);
        default:
            return x;
    }
}

typedef struct {
    vec low, high;
} Clamp;

INLINE Clamp clamp_of(const Epilogue* epilogue) {
    return (Clamp){broadcast(epilogue->low), broadcast(epilogue->high)};
}

// `residual` and `mask` point to this vector's elements, or are NULL.
INLINE vec add_clamp_mask(vec x, const float* residual, const Clamp clamp, const int32_t* mask) {
    if (residual) x += load(residual);
    x = vec_min(clamp.high, vec_max(clamp.low, x));
    return mask ? apply_mask(x, *(const ivec*)mask) : x;
}

// The mask of vectors that are inside the image.
static const _Alignas(64) int32_t all_inside[32 * LANES] = {[0 ... 32 * LANES - 1] = -1};

INLINE void store_vectors(const vec* sums, float* to, int64_t row, const float* addend, int64_t addend_row,
                          const Clamp clamp, const int32_t* mask, int64_t mask_row, const int rows, const int columns) {
    UNROLL for (int v = 0; v < rows * columns; v++) {
        const int r = v / columns, c = v % columns;
        store(to + r * row + c * LANES, add_clamp_mask(sums[v], addend ? addend + r * addend_row + c * LANES : 0, clamp,
                                                       mask + r * mask_row + c * LANES));
    }
}

// Finish and store a tile of sums. Two copies of the code, so that nothing is checked per vector. A mask costs so little
// that it is always applied: two more copies would be a fifth of the library and of the time to compile it.
INLINE void store_tile(const vec* sums, float* to, int64_t row, const float* addend, int64_t addend_row,
                       const Clamp clamp, const int32_t* mask, int64_t mask_row, const int rows, const int columns) {
    if (!mask) mask = all_inside, mask_row = 0;
    if (addend) store_vectors(sums, to, row, addend, addend_row, clamp, mask, mask_row, rows, columns);
    else store_vectors(sums, to, row, 0, 0, clamp, mask, mask_row, rows, columns);
}

// Activations other than a clamp, applied after storing: a call among the sums would spill their registers.
static __attribute__((noinline)) void activate_tile(float* out, int64_t row, int rows, int columns, int64_t function,
                                                    const int32_t* mask, int64_t mask_row) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            vec x = activate(load(out + r * row + c * LANES), function);
            if (mask) x = apply_mask(x, *(const ivec*)(mask + r * mask_row + c * LANES));
            store(out + r * row + c * LANES, x);
        }
}

#endif
