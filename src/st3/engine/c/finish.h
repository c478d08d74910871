// What follows a sum: activations, and the order of residual, clamp, function and mask.
#ifndef ST3_FINISH_H
#define ST3_FINISH_H

#include "lanes.h"
#include "plan.h"

// e^x: 2^n times a polynomial of the rest, within 2 units in the last place.
static vec exponential(vec x) {
    x = smaller(spread(88.0f), larger(spread(-87.0f), x));
    vec scaled = x * 1.44269504f;
    ivec n = __builtin_convertvector(scaled + choose(scaled < 0, spread(-0.5f), spread(0.5f)), ivec);
    vec whole = __builtin_convertvector(n, vec);
    vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec p = spread(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vec)((n + 127) << 23);
}

static vec sigmoid(vec x) { return 1.0f / (1.0f + exponential(-x)); }

static vec tangent(vec x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

// erf by a rational argument and a polynomial of degree 5 (Abramowitz and Stegun 7.1.26, error below 2e-7).
static vec error_function(vec x) {
    vec size = choose(x < 0, -x, x);
    vec t = 1.0f / (1.0f + 0.3275911f * size);
    vec p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    vec y = 1.0f - p * exponential(-size * size);
    return choose(x < 0, -y, y);
}

static __attribute__((noinline)) vec activate(vec x, int32_t function) {
    switch (function) {
        case GELU:
            return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
        case GELU_TANH:
            return x * sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
        case SILU:
            return x * sigmoid(x);
        case HARDSWISH:
            return x * smaller(spread(1.0f), larger(spread(0.0f), x * (1.0f / 6) + 0.5f));
        case HARDSIGMOID:
            return smaller(spread(1.0f), larger(spread(0.0f), x * (1.0f / 6) + 0.5f));
        case SIGMOID:
            return sigmoid(x);
        case TANH:
            return tangent(x);
        default:
            return x;
    }
}

typedef struct {
    vec low, high;
    int is_capped;  // few activations are: the others save an instruction
} Clamp;

ALWAYS Clamp clamp_of(const Finish* finish) {
    return (Clamp){spread(finish->low), spread(finish->high), finish->high < INFINITY};
}

// `residual` and `mask` point at this vector's own; NULL where there is none.
ALWAYS vec clamped(vec x, const float* residual, const Clamp clamp, const int32_t* mask) {
    if (residual) x += load(residual);
    x = larger(clamp.low, x);
    if (clamp.is_capped) x = smaller(clamp.high, x);
    return mask ? keep(x, *(const ivec*)mask) : x;
}

// A tile of sums, stored. Most have neither mask nor cap: without a look at these for each vector they take less time.
ALWAYS void finish_tile(const vec* sums, float* to, int64_t row, const float* more, int64_t more_row, const Clamp clamp,
                        const int32_t* mask, int64_t mask_row, const int rows, const int columns) {
    if (mask || clamp.is_capped) {
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++)
            store(to + r * row + c * LANES, clamped(sums[r * columns + c], more ? more + r * more_row + c * LANES : 0, clamp,
                                                    mask ? mask + r * mask_row + c * LANES : 0));
    } else if (more) {
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++)
            store(to + r * row + c * LANES, larger(clamp.low, sums[r * columns + c] + load(more + r * more_row + c * LANES)));
    } else {
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++)
            store(to + r * row + c * LANES, larger(clamp.low, sums[r * columns + c]));
    }
}

// The activations that are more than a clamp, over what was just stored: a call would cost the sums their registers.
static __attribute__((noinline)) void activate_tile(float* out, int64_t row, int rows, int columns, int32_t function,
                                                    const int32_t* mask, int64_t mask_row) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            vec x = activate(load(out + r * row + c * LANES), function);
            if (mask) x = keep(x, *(const ivec*)(mask + r * mask_row + c * LANES));
            store(out + r * row + c * LANES, x);
        }
}

#endif
