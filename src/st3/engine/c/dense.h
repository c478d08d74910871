// Convolutions by all weights.
#ifndef ST3_DENSE_H
#define ST3_DENSE_H

#include "sparse.h"

// ---------------------------------------------------------------- the dense convolution

// For first layers and others too dense for lists. The sums of a few outputs times a few vectors stay in registers, so
// that an input is loaded once for all of these outputs and a weight once for all of these vectors. As in sparse.h, taps
// are cut into blocks of input channels whose inputs stay in the L1 cache.

// Sums in registers. The rest holds one input per vector or one weight per output, whichever are fewer, and one more.
#define DENSE_SUMS (ACCUMULATORS > 14 ? 25 : 12)
#define DENSE_OUTPUTS(vectors) (DENSE_SUMS / (vectors) > 8 ? 8 : DENSE_SUMS / (vectors))

typedef void (*DenseKernel)(const Dense*, int32_t, int32_t, const Tile*, const float*, float*, const float*, float*);

INLINE void dense_tile(const Dense* d, int32_t group, int32_t block, const Tile* tile, const float* in, float* out,
                       const float* residual, float* partial, const int rows, const int columns, const int step,
                       const int outputs) {
    const int64_t in_row = d->in_row * 4, in_column = (step ? step * LANES : d->in_column) * 4;
    const int vectors = rows * columns;
    const int is_first = block == 0, is_last = block == d->block_count - 1;
    const int32_t low_output = d->bounds[group], end_output = d->bounds[group + 1];
    const int32_t* first_tap = d->taps + d->blocks[block];
    const int32_t* end_tap = d->taps + d->blocks[block + 1];
    const float* weight = d->weights + d->starts[group * d->block_count + block];
    const int32_t* mask = d->epilogue.mask ? d->epilogue.mask + tile->mask : 0;
    for (int32_t first = low_output; first < end_output; first += outputs) {
        vec all_sums[DENSE_SUMS];
        float* saved = partial + (int64_t)(first - low_output) * vectors * LANES;
        UNROLL for (int k = 0; k < outputs; k++) {
            vec bias = broadcast(d->bias[first + k]);
            vec* sums = sums_of(all_sums, k, outputs, vectors);
            UNROLL for (int v = 0; v < vectors; v++)
                sums[v] = is_first ? bias : load(saved + (k * vectors + v) * LANES);
        }
        for (const int32_t* tap = first_tap; tap < end_tap; tap++, weight += outputs) {
            const char* from = (const char*)in + *tap;
            PIN_POINTER(from);
            __builtin_prefetch((const char*)weight + PREFETCH_BYTES);
            if (outputs <= vectors) {
                vec weights[DENSE_SUMS];
                UNROLL for (int k = 0; k < outputs; k++) weights[k] = broadcast(weight[k]);
                UNROLL for (int v = 0; v < vectors; v++) {
                    vec input = load((const float*)(from + v / columns * in_row + v % columns * in_column));
                    PIN_VECTOR(input);
                    UNROLL for (int k = 0; k < outputs; k++)
                        sums_of(all_sums, k, outputs, vectors)[v] += weights[k] * input;
                }
            } else {
                vec inputs[DENSE_SUMS];
                UNROLL for (int v = 0; v < vectors; v++) {
                    inputs[v] = load((const float*)(from + v / columns * in_row + v % columns * in_column));
                    PIN_VECTOR(inputs[v]);
                }
                UNROLL for (int k = 0; k < outputs; k++) {
                    vec w = broadcast(weight[k]);
                    PIN_VECTOR(w);
                    vec* sums = sums_of(all_sums, k, outputs, vectors);
                    UNROLL for (int v = 0; v < vectors; v++) sums[v] += w * inputs[v];
                }
            }
        }
        if (!is_last) {
            UNROLL for (int i = 0; i < outputs * vectors; i++) store(saved + i * LANES, all_sums[i]);
            continue;
        }
        const Clamp clamp = clamp_of(&d->epilogue);
        UNROLL for (int k = 0; k < outputs; k++) {
            if (first + k >= end_output) continue;
            float* to = out + (first + k) * d->out_plane;
            const float* addend = residual ? residual + (first + k) * d->epilogue.residual_plane : 0;
            store_tile(sums_of(all_sums, k, outputs, vectors), to, d->out_row, addend, d->epilogue.residual_row, clamp,
                       mask, d->mask_row, rows, columns);
        }
        if (d->epilogue.function)
            for (int32_t o = first; o < first + outputs && o < end_output; o++)
                activate_tile(out + o * d->out_plane, d->out_row, rows, columns, d->epilogue.function, mask, d->mask_row);
    }
}

#define DENSE_KERNEL(R, C, S)                                                                                      \
    static void dense_##R##_##C##_##S(const Dense* d, int32_t group, int32_t block, const Tile* tile,              \
                                      const float* in, float* out, const float* residual, float* partial) {        \
        dense_tile(d, group, block, tile, in, out, residual, partial, R, C, S, DENSE_OUTPUTS((R) * (C)));          \
    }
#define DENSE_NAME(R, C, S) dense_##R##_##C##_##S,

DENSE_TILES(DENSE_KERNEL)

static const DenseKernel dense_kernels[] = {
    DENSE_TILES(DENSE_NAME)
};

// One group of outputs on one tile of one image.
INLINE void dense_group(const Dense* d, int32_t group, int32_t image, const Tile* tile, float* scratch) {
    const float* in = d->in + image * d->in_image + tile->in;
    float* out = d->out + image * d->out_image + tile->out;
    const float* residual = d->epilogue.residual;
    if (residual) residual += image * d->epilogue.residual_image + tile->residual;
    for (int32_t block = 0; block < d->block_count; block++)
        dense_kernels[tile->kernel](d, group, block, tile, in, out, residual, scratch);
}

// Tasks: one Part each.
static void run_dense(const void* arguments, int32_t task, const Context* context) {
    const Dense* d = arguments;
    Part part = part_of(task, d->group_count, d->images, d->tile_count, d->tile_major);
    dense_group(d, part.group, part.image, d->tiles + part.tile, context->scratch);
}

// ---------------------------------------------------------------- the dense 3x3 depthwise convolution

// A tile's sums and all nine weights stay in registers; every input is loaded once and added to all the sums that use it.

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

DEPTHWISE_TILES(DEPTHWISE_KERNEL)

static const DepthwiseKernel depthwise_kernels[] = {
    DEPTHWISE_TILES(DEPTHWISE_NAME)
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
