// The dense 3x3 depthwise convolution. A tile's sums and all nine weights stay in registers; every input is loaded once
// and added to all the sums that use it.
#ifndef ST3_DEPTHWISE_H
#define ST3_DEPTHWISE_H

#include "sparse.h"

typedef void (*DepthwiseKernel)(const Depthwise*, const Tile*, const float*, float*, const float*, int32_t);

INLINE void depthwise_tile(const Depthwise* d, const Tile* tile, const float* in, float* out, const float* residual,
                           int32_t channel, const int rows, const int columns, const int step) {
    const int vectors = rows * columns, high = (rows - 1) * step + 3, wide = (columns - 1) * step + 3;
    const int32_t* mask = d->epilogue.mask ? d->epilogue.mask + tile->mask : 0;
    vec weights[9], sums[ACCUMULATORS];
    UNROLL for (int k = 0; k < 9; k++) weights[k] = broadcast(d->weights[channel * 9 + k]);
    UNROLL for (int v = 0; v < vectors; v++) sums[v] = broadcast(d->bias[channel]);
    UNROLL for (int y = 0; y < high; y++) UNROLL for (int x = 0; x < wide; x++) {
        vec input = load(in + y * d->in_row + x * LANES);
        PIN_VECTOR(input);
        UNROLL for (int v = 0; v < vectors; v++) {
            const int ky = y - v / columns * step, kx = x - v % columns * step;
            if (ky >= 0 && ky < 3 && kx >= 0 && kx < 3) sums[v] += weights[ky * 3 + kx] * input;
        }
    }
    const Clamp clamp = clamp_of(&d->epilogue);
    store_tile(sums, out, d->out_row, residual, d->epilogue.residual_row, clamp, mask, d->mask_row, rows, columns);
    if (d->epilogue.function) activate_tile(out, d->out_row, rows, columns, d->epilogue.function, mask, d->mask_row);
}

#define DEPTHWISE_KERNEL(R, C, S)                                                                                  \
    static void depthwise_##R##_##C##_##S(const Depthwise* d, const Tile* tile, const float* in, float* out,       \
                                          const float* residual, int32_t channel) {                                \
        depthwise_tile(d, tile, in, out, residual, channel, R, C, S);                                              \
    }
#define DEPTHWISE_NAME(R, C, S) depthwise_##R##_##C##_##S,

SMALL_DEPTHWISE_TILES(DEPTHWISE_KERNEL)
#if ACCUMULATORS > 14
LARGE_DEPTHWISE_TILES(DEPTHWISE_KERNEL)
#endif

static const DepthwiseKernel depthwise_kernels[] = {
    SMALL_DEPTHWISE_TILES(DEPTHWISE_NAME)
#if ACCUMULATORS > 14
    LARGE_DEPTHWISE_TILES(DEPTHWISE_NAME)
#endif
};

// Some tiles of one channel of one image; `in` points to its first pixel.
INLINE void depthwise_plane(const Depthwise* d, const float* in, int32_t image, int32_t channel, int32_t first,
                            int32_t end) {
    in -= d->first_tap;
    float* out = d->out + image * d->out_image + channel * d->out_plane;
    const float* residual = d->epilogue.residual;
    if (residual) residual += image * d->epilogue.residual_image + channel * d->epilogue.residual_plane;
    for (const Tile* tile = d->tiles + first; tile < d->tiles + end; tile++)
        depthwise_kernels[tile->kernel](d, tile, in + tile->in, out + tile->out, residual ? residual + tile->residual : 0,
                                        channel);
}

// Tasks: parts x images x ranges of channels.
static void run_depthwise(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Depthwise* d = arguments;
    int32_t ranges = (d->channels + d->channels_per_task - 1) / d->channels_per_task;
    int32_t first = task % ranges * d->channels_per_task, end = first + d->channels_per_task;
    int32_t image = task / ranges % d->images, part = task / ranges / d->images;
    if (end > d->channels) end = d->channels;
    const float* in = d->in + image * d->in_image;
    for (int32_t channel = first; channel < end; channel++)
        depthwise_plane(d, in + channel * d->in_plane, image, channel, d->starts[part], d->starts[part + 1]);
}

#endif
