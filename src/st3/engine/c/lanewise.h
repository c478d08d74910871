// The dense convolution with outputs across the lanes: for small pictures, whose patches leave lanes empty.
//
// A weight vector holds LANES outputs, an input is one number for all of them. Only pixels of the picture are computed:
// those of one vector of the layout are a "span" of rows and columns of lanes, or a few of them. The sums of a vector's
// pixels are then transposed, so that lanes are pixels again.
#ifndef ST3_LANEWISE_H
#define ST3_LANEWISE_H

#include "dense.h"
#include "turn.h"

#define SIDE_BY_SIDE 2  // vectors of outputs
#define TAPS_AHEAD 8   // that inputs and weights are fetched into the first cache
#define BUNDLE (SIDE_BY_SIDE * LANES)

typedef void (*LanewiseKernel)(const Lanewise*, const float*, const float*, const float*, float*, const char*, int64_t);

// `ahead`: weights that will be needed next, fetched into the second cache a little at each tap.
ALWAYS void lanewise_span(const Lanewise* a, const float* weight, const float* bias, const float* in, float* sums,
                        const char* ahead, int64_t pace, const int rows, const int columns) {
    const int64_t row = a->lane_row;
    vec kept[ACCUMULATORS];
    UNROLL for (int p = 0; p < rows * columns; p++) UNROLL for (int v = 0; v < SIDE_BY_SIDE; v++)
        kept[p * SIDE_BY_SIDE + v] = load_loose(bias + v * LANES);
    const int32_t* end = a->taps + a->tap_count;
    for (const int32_t* tap = a->taps; tap < end; tap++, weight += BUNDLE, ahead += pace) {
        const float* from = (const float*)((const char*)in + *tap);
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch((const char*)in + tap[TAPS_AHEAD]);
        UNROLL for (int v = 0; v < SIDE_BY_SIDE; v++) __builtin_prefetch(weight + TAPS_AHEAD * BUNDLE + v * LANES);
        vec weights[SIDE_BY_SIDE];
        UNROLL for (int v = 0; v < SIDE_BY_SIDE; v++) {
            weights[v] = load(weight + v * LANES);
            HELD(weights[v]);
        }
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++) {
            vec input = spread(from[r * row + c]);
            HELD(input);
            UNROLL for (int v = 0; v < SIDE_BY_SIDE; v++)
                kept[(r * columns + c) * SIDE_BY_SIDE + v] += input * weights[v];
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++) UNROLL for (int v = 0; v < SIDE_BY_SIDE; v++)
        store(sums + (r * row + c) * BUNDLE + v * LANES, kept[(r * columns + c) * SIDE_BY_SIDE + v]);
}

#define LANEWISE_KERNEL(R, C, S)                                                                                     \
    static void lanewise_##R##_##C(const Lanewise* a, const float* weight, const float* bias, const float* in,         \
                                 float* sums, const char* ahead, int64_t pace) {                                   \
        lanewise_span(a, weight, bias, in, sums, ahead, pace, R, C);                                                 \
    }
#define LANEWISE_NAME(R, C, S) lanewise_##R##_##C,

SMALL_SPANS(LANEWISE_KERNEL)
#if ACCUMULATORS == 28
LARGE_SPANS(LANEWISE_KERNEL)
#endif

static const LanewiseKernel lanewise_kernels[] = {
    SMALL_SPANS(LANEWISE_NAME)
#if ACCUMULATORS == 28
    LARGE_SPANS(LANEWISE_NAME)
#endif
};

// The outputs `first` and following of one vector of pixels, from sums of all its lanes. Lanes without a pixel hold what
// was there before: the mask makes zeros of it, or nobody looks at it.
static void lanewise_finish(const Lanewise* a, const float* sums, float* out, const float* residual, const int32_t* mask,
                          int32_t first, int32_t end) {
    const Clamp clamp = clamp_of(&a->finish);
    for (int v = 0; v < SIDE_BY_SIDE && first + v * LANES < end; v++) {
        vec turned[LANES];
        UNROLL for (int l = 0; l < LANES; l++) turned[l] = load(sums + l * BUNDLE + v * LANES);
        transpose(turned);
        UNROLL for (int k = 0; k < LANES; k++) {
            int32_t output = first + v * LANES + k;
            if (output >= end) continue;
            store(out + output * a->out_plane,
                  clamped(turned[k], residual ? residual + output * a->finish.residual_plane : 0, clamp, mask));
        }
    }
    if (a->finish.function)
        for (int32_t output = first; output < end && output < first + BUNDLE; output++)
            activate_tile(out + output * a->out_plane, 0, 1, 1, a->finish.function, mask, 0);
}

// One group of outputs on one vector of pixels of one image.
ALWAYS void lanewise_group(const Lanewise* a, int32_t group, int32_t image, int32_t number, float* scratch) {
    const Tile* tile = a->tiles + number;
    const float* in = a->in + image * a->in_image + tile->in;
    float* out = a->out + image * a->out_image + tile->out;
    const float* residual = a->finish.residual;
    if (residual) residual += image * a->finish.residual_image + tile->residual;
    const int32_t* mask = a->finish.mask ? a->finish.mask + tile->mask : 0;
    int32_t first = a->bounds[group], end = a->bounds[group + 1];
    int64_t each = (int64_t)a->tap_count * BUNDLE;
    const float* weights = a->weights + a->starts[group];
    // While a group is computed, tile by tile, the weights of the next one come.
    const int32_t jobs = a->tile_count * a->images, job = image * a->tile_count + number;
    const int64_t pace = BUNDLE * 4 / jobs;
    for (; first < end; first += BUNDLE, weights += each) {
        const char* ahead = (const char*)(a->weights + a->starts[group + 1]) + (weights - a->weights - a->starts[group]) * 4;
        ahead += each * 4 / jobs * job;
        int64_t step = group + 1 < a->group_count ? pace : 0;
        for (const Span* span = a->spans + tile->kernel;; span++) {
            lanewise_kernels[span->kernel](a, weights, a->bias + first, in + span->lane, scratch + span->lane * BUNDLE, ahead,
                                         step);
            step = 0;
            if (span->is_last) break;
        }
        lanewise_finish(a, scratch, out, residual, mask, first, end);
    }
}

// Tasks: parts.
static void run_lanewise(const void* arguments, int32_t task, const Place* place) {
    const Lanewise* a = arguments;
    Part part = part_of(task, a->group_count, a->images, a->tile_count, 0);
    lanewise_group(a, part.group, part.image, part.tile, place->scratch);
}

#endif
