// The dense convolution vectorised over outputs, for small images whose patches leave lanes empty.
//
// A weight vector holds LANES outputs; each input is broadcast. Only pixels inside the image are computed: in one vector
// of the layout these are one or more "spans", rectangles of lanes. The sums of a vector's pixels are transposed at the
// end, so that lanes are pixels again.
#ifndef ST3_LANEWISE_H
#define ST3_LANEWISE_H

#include "dense.h"
#include "moves.h"

#define OUTPUT_VECTORS 2  // per pixel
#define SPAN_SUMS (ACCUMULATORS > 14 ? 28 : 14)  // at most
#define BUNDLE (OUTPUT_VECTORS * LANES)

typedef void (*LanewiseKernel)(const Lanewise*, const float*, const float*, const float*, float*, const char*, int64_t);

// `prefetch`: the weights of the next group, fetched into the L2 cache a little at each tap.
INLINE void lanewise_span(const Lanewise* a, const float* weight, const float* bias, const float* in, float* sums,
                          const char* prefetch, int64_t prefetch_step, const int rows, const int columns) {
    const int64_t row = a->lane_row;
    const int pixels = rows * columns;
    vec totals[SPAN_SUMS];
    UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int v = 0; v < OUTPUT_VECTORS; v++)
        totals[p * OUTPUT_VECTORS + v] = load_unaligned(bias + v * LANES);
    const int32_t* end = a->taps + a->tap_count;
    for (const int32_t* tap = a->taps; tap < end; tap++, weight += BUNDLE, prefetch += prefetch_step) {
        const float* from = (const float*)((const char*)in + *tap);
        __builtin_prefetch(prefetch, 0, 2);
        __builtin_prefetch((const char*)in + tap[LANEWISE_PREFETCH]);
        UNROLL for (int v = 0; v < OUTPUT_VECTORS; v++) __builtin_prefetch(weight + LANEWISE_PREFETCH * BUNDLE + v * LANES);
        vec weights[OUTPUT_VECTORS];
        UNROLL for (int v = 0; v < OUTPUT_VECTORS; v++) {
            weights[v] = load(weight + v * LANES);
            PIN_VECTOR(weights[v]);
        }
        UNROLL for (int p = 0; p < pixels; p++) {
            vec input = broadcast(from[p / columns * row + p % columns]);
            PIN_VECTOR(input);
            UNROLL for (int v = 0; v < OUTPUT_VECTORS; v++) totals[p * OUTPUT_VECTORS + v] += input * weights[v];
        }
    }
    UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int v = 0; v < OUTPUT_VECTORS; v++)
        store(sums + (p / columns * row + p % columns) * BUNDLE + v * LANES, totals[p * OUTPUT_VECTORS + v]);
}

#define LANEWISE_KERNEL(R, C, S)                                                                                   \
    static void lanewise_##R##_##C(const Lanewise* a, const float* weight, const float* bias, const float* in,     \
                                   float* sums, const char* prefetch, int64_t prefetch_step) {                     \
        lanewise_span(a, weight, bias, in, sums, prefetch, prefetch_step, R, C);                                   \
    }
#define LANEWISE_NAME(R, C, S) lanewise_##R##_##C,

SPANS(LANEWISE_KERNEL)

static const LanewiseKernel lanewise_kernels[] = {
    SPANS(LANEWISE_NAME)
};

// Transpose, finish and store the outputs from `first` on for one vector of pixels. Lanes without a pixel hold stale
// sums: the mask zeroes them, or no step reads them.
static void lanewise_epilogue(const Lanewise* a, const float* sums, float* out, const float* residual,
                              const int32_t* mask, int32_t first, int32_t end) {
    const Clamp clamp = clamp_of(&a->epilogue);
    for (int v = 0; v < OUTPUT_VECTORS && first + v * LANES < end; v++) {
        vec transposed[LANES];
        UNROLL for (int l = 0; l < LANES; l++) transposed[l] = load(sums + l * BUNDLE + v * LANES);
        transpose(transposed);
        UNROLL for (int k = 0; k < LANES; k++) {
            int32_t output = first + v * LANES + k;
            if (output >= end) continue;
            const float* addend = residual ? residual + output * a->epilogue.residual_plane : 0;
            store(out + output * a->out_plane, add_clamp_mask(transposed[k], addend, clamp, mask));
        }
    }
    if (a->epilogue.function)
        for (int32_t output = first; output < end && output < first + BUNDLE; output++)
            activate_tile(out + output * a->out_plane, 0, 1, 1, a->epilogue.function, mask, 0);
}

// One group of outputs on one vector of pixels of one image.
INLINE void lanewise_group(const Lanewise* a, int32_t group, int32_t image, int32_t number, float* scratch) {
    const Tile* tile = a->tiles + number;
    const float* in = a->in + image * a->in_image + tile->in;
    float* out = a->out + image * a->out_image + tile->out;
    const float* residual = a->epilogue.residual;
    if (residual) residual += image * a->epilogue.residual_image + tile->residual;
    const int32_t* mask = a->epilogue.mask ? a->epilogue.mask + tile->mask : 0;
    int32_t first = a->bounds[group], end = a->bounds[group + 1];
    int64_t each = (int64_t)a->tap_count * BUNDLE;
    const float* weights = a->weights + a->starts[group];
    // While the tiles of a group are computed, the weights of the next group are prefetched.
    const int32_t jobs = a->tile_count * a->images, job = image * a->tile_count + number;
    const int64_t prefetch_step = BUNDLE * 4 / jobs;
    for (; first < end; first += BUNDLE, weights += each) {
        const char* prefetch = (const char*)(a->weights + a->starts[group + 1]);
        prefetch += (weights - a->weights - a->starts[group]) * 4;
        prefetch += each * 4 / jobs * job;
        int64_t step = group + 1 < a->group_count ? prefetch_step : 0;
        for (const Span* span = a->spans + tile->kernel;; span++) {
            lanewise_kernels[span->kernel](a, weights, a->bias + first, in + span->lane, scratch + span->lane * BUNDLE,
                                           prefetch, step);
            step = 0;
            if (span->is_last) break;
        }
        lanewise_epilogue(a, scratch, out, residual, mask, first, end);
    }
}

// Tasks: one Part each.
static void run_lanewise(const void* arguments, int32_t task, const Context* context) {
    const Lanewise* a = arguments;
    Part part = part_of(task, a->group_count, a->images, a->tile_count, 0);
    lanewise_group(a, part.group, part.image, part.tile, context->scratch);
}

#endif
