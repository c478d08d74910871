// The dense convolution in the same layout: a few outputs times a few vectors in registers, every tap's input loaded
// once for all of them. For first layers and others too dense to gain from lists.
#ifndef ST3_DENSE_H
#define ST3_DENSE_H

#include "sparse.h"

#define DENSE_OUTPUTS 4

typedef void (*DenseKernel)(const Dense*, const Tile*, const float*, float*, const float*, int32_t);

ALWAYS void dense_tile(const Dense* d, const Tile* tile, const float* in, float* out, const float* residual,
                       int32_t first, const int rows, const int columns, const int step) {
    const int64_t in_row = d->in_row * 4, in_column = (step ? step * LANES : d->in_column) * 4;
    const int vectors = rows * columns;
    const int32_t* mask = d->finish.mask ? d->finish.mask + tile->mask : 0;
    const float* weight = d->weights + (int64_t)first * d->tap_count;
    const vec low = spread(d->finish.low), high = spread(d->finish.high);
    vec sums[ACCUMULATORS];
    UNROLL for (int k = 0; k < DENSE_OUTPUTS; k++) {
        vec bias = spread(d->bias[first + k]);
        UNROLL for (int v = 0; v < vectors; v++) sums[k * vectors + v] = bias;
    }
    for (int32_t t = 0; t < d->tap_count; t++, weight += DENSE_OUTPUTS) {
        const char* from = (const char*)in + d->taps[t];
        vec inputs[ACCUMULATORS / DENSE_OUTPUTS];
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++)
            inputs[r * columns + c] = load((const float*)(from + r * in_row + c * in_column));
        UNROLL for (int k = 0; k < DENSE_OUTPUTS; k++) {
            vec w = spread(weight[k]);
            UNROLL for (int v = 0; v < vectors; v++) sums[k * vectors + v] += w * inputs[v];
        }
    }
    UNROLL for (int k = 0; k < DENSE_OUTPUTS; k++) {
        if (first + k >= d->outputs) continue;
        float* to = out + (first + k) * d->out_plane;
        const float* more = residual ? residual + (first + k) * d->finish.residual_plane : 0;
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++)
            store(to + r * d->out_row + c * LANES,
                  clamped(sums[k * vectors + r * columns + c], more ? more + r * d->finish.residual_row + c * LANES : 0, low,
                          high, mask ? mask + r * d->mask_row + c * LANES : 0));
        if (d->finish.function)
            activate_tile(to, d->out_row, rows, columns, d->finish.function, mask, d->mask_row);
    }
}

#define DENSE_KERNEL(R, C, S)                                                                                  \
    static void dense_##R##_##C##_##S(const Dense* d, const Tile* tile, const float* in, float* out,           \
                                      const float* residual, int32_t first) {                                  \
        dense_tile(d, tile, in, out, residual, first, R, C, S);                                                \
    }
#define DENSE_NAME(R, C, S) dense_##R##_##C##_##S,

SMALL_DENSE_TILES(DENSE_KERNEL)
#if ACCUMULATORS == 28
LARGE_DENSE_TILES(DENSE_KERNEL)
#endif

static const DenseKernel dense_kernels[] = {
    SMALL_DENSE_TILES(DENSE_NAME)
#if ACCUMULATORS == 28
    LARGE_DENSE_TILES(DENSE_NAME)
#endif
};

// DENSE_OUTPUTS outputs of one image: all tiles in turn, so that the weights stay in the first cache.
static void dense_bundle(const Dense* d, int32_t image, int32_t first) {
    const float* residual = d->finish.residual;
    if (residual) residual += image * d->finish.residual_image;
    for (const Tile* tile = d->tiles; tile < d->tiles + d->tile_count; tile++)
        dense_kernels[tile->kernel](d, tile, d->in + image * d->in_image + tile->in,
                                    d->out + image * d->out_image + tile->out,
                                    residual ? residual + tile->residual : 0, first);
}

// Tasks: for each image, for each bundle of outputs.
static void run_dense(const void* arguments, int32_t task, const Place* place) {
    (void)place;
    const Dense* d = arguments;
    int32_t bundles = (d->outputs + DENSE_OUTPUTS - 1) / DENSE_OUTPUTS;
    dense_bundle(d, task / bundles, task % bundles * DENSE_OUTPUTS);
}

#endif
