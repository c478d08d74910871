// The sparse convolution: for every output, a list of (weight, offset of its input).
//
// The sums of a tile of vectors stay in registers. Each non-zero weight costs one broadcast, and one aligned load and
// multiply-add per vector. Small tiles compute several outputs at a time to hide the latency of the multiply-adds; the
// lists of these outputs are interleaved in a "bundle" and padded to the same length. Lists are cut into blocks of input
// channels, so that the inputs of a block stay in the L1 cache; between blocks the sums are kept in `partial`.
#ifndef ST3_SPARSE_H
#define ST3_SPARSE_H

#include "epilogue.h"
#include "variants.h"

#define PREFETCH_BYTES 2048  // distance at which lists are prefetched from the L3 cache or memory
// Keeps an address in one register: otherwise the compiler keeps its parts in several and runs out of them.
#define PIN_POINTER(pointer) __asm__("" : "+r"(pointer))
#define SPARSE_OUTPUTS(vectors) \
    ((vectors) * 2 > ACCUMULATORS ? 1 : (vectors) * 4 > ACCUMULATORS ? 2 : (vectors) * 8 > ACCUMULATORS ? 4 : 8)

typedef void (*SparseKernel)(const Sparse*, const Block*, const Tile*, const float*, float*, const float*, float*);

// The offset of the k-th weight's input. Two offsets are loaded at once, since loads limit the kernel.
INLINE uint64_t offset_of(const uint32_t* offsets, const int k, const int outputs) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (outputs > 1) {
        uint64_t pair;
        memcpy(&pair, offsets + (k & ~1), 8);
        return k & 1 ? pair >> 32 : (uint32_t)pair;
    }
#endif
    return offsets[k];
}

// The k-th weight in all lanes. Where one load can serve several weights, `loaded` holds them.
INLINE vec weight_of(const float* weights, const int k, const int outputs, vec* loaded) {
#if defined(__AVX2__)
    if (outputs > 1) {
        if (k % 4 == 0) {
            *loaded = repeat(weights + k, outputs);
            PIN_VECTOR(*loaded);
        }
        return pick(*loaded, k % 4);
    }
#endif
    (void)loaded;
    return broadcast(weights[k]);
}

// The sums of the k-th output. A single output has no k: clang removes its loop too late to keep the sums in registers.
INLINE vec* sums_of(vec* sums, int k, const int outputs, const int vectors) {
    return outputs == 1 ? sums : sums + k * vectors;
}

INLINE void sparse_tile(const Sparse* s, const Block* block, const Tile* tile, const float* in, float* out,
                        const float* residual, float* partial, const int rows, const int columns, const int step,
                        const int outputs) {
    const int64_t in_row = s->in_row * 4, in_column = (step ? step * LANES : s->in_column) * 4;
    const int vectors = rows * columns;
    const Item* item = s->items + block->items;
    const char* start = (const char*)in + s->lowest_offset;
    PIN_POINTER(start);
    const int32_t* output = s->outputs + block->bundle * outputs;
    const int32_t* length = s->lengths + block->bundle;
    const int32_t* mask = s->epilogue.mask ? s->epilogue.mask + tile->mask : 0;
    for (int i = 0; i < block->bundles; i++, output += outputs) {
        vec all_sums[ACCUMULATORS];
        if (block->first) {
            UNROLL for (int k = 0; k < outputs; k++) {
                vec bias = broadcast(s->bias[output[k] < 0 ? 0 : output[k]]);
                vec* sums = sums_of(all_sums, k, outputs, vectors);
                UNROLL for (int v = 0; v < vectors; v++) sums[v] = bias;
            }
        } else {
            UNROLL for (int k = 0; k < outputs; k++) {
                const float* from = partial + (int64_t)(output[k] < 0 ? 0 : output[k] - block->base) * vectors * LANES;
                vec* sums = sums_of(all_sums, k, outputs, vectors);
                UNROLL for (int v = 0; v < vectors; v++) sums[v] = load(from + v * LANES);
            }
        }
        if (block->last && i + 1 < block->bundles) {  // prefetch what the next bundle writes and adds
            UNROLL for (int k = 0; k < outputs; k++) {
                int64_t o = output[outputs + k] < 0 ? 0 : output[outputs + k];
                const float* to = out + o * s->out_plane;
                UNROLL for (int v = 0; v < vectors; v++)
                    __builtin_prefetch(to + v / columns * s->out_row + v % columns * LANES, 1);
                if (!residual) continue;
                const float* addend = residual + o * s->epilogue.residual_plane;
                UNROLL for (int v = 0; v < vectors; v++)
                    __builtin_prefetch(addend + v / columns * s->epilogue.residual_row + v % columns * LANES);
            }
        }
        const Item* end = item + (int64_t)length[i] * outputs;
        for (const char* line = (const char*)item; line < (const char*)end; line += 64)
            __builtin_prefetch(line + PREFETCH_BYTES);
        for (; item < end; item += outputs) {
            const float* weights = (const float*)item + outputs;
            vec loaded = {0};
            UNROLL for (int k = 0; k < outputs; k++) {
                vec weight = weight_of(weights, k, outputs, &loaded);
                const char* from = start + offset_of((const uint32_t*)item, k, outputs);
                PIN_POINTER(from);
                vec* sums = sums_of(all_sums, k, outputs, vectors);
                UNROLL for (int v = 0; v < vectors; v++)
                    sums[v] += weight * load((const float*)(from + v / columns * in_row + v % columns * in_column));
            }
        }
        if (block->last) {
            const Clamp clamp = clamp_of(&s->epilogue);
            UNROLL for (int k = 0; k < outputs; k++) {
                if (output[k] < 0) continue;
                float* to = out + output[k] * s->out_plane;
                const float* addend = residual ? residual + output[k] * s->epilogue.residual_plane : 0;
                store_tile(sums_of(all_sums, k, outputs, vectors), to, s->out_row, addend, s->epilogue.residual_row,
                           clamp, mask, s->mask_row, rows, columns);
            }
            if (s->epilogue.function)
                for (int k = 0; k < outputs; k++)
                    if (output[k] >= 0)
                        activate_tile(out + output[k] * s->out_plane, s->out_row, rows, columns, s->epilogue.function,
                                      mask, s->mask_row);
        } else {
            UNROLL for (int k = 0; k < outputs; k++) {
                if (output[k] < 0) continue;
                float* to = partial + (int64_t)(output[k] - block->base) * vectors * LANES;
                const vec* sums = sums_of(all_sums, k, outputs, vectors);
                UNROLL for (int v = 0; v < vectors; v++) store(to + v * LANES, sums[v]);
            }
        }
    }
}

#define SPARSE_KERNEL(R, C, S)                                                                                     \
    static void sparse_##R##_##C##_##S(const Sparse* s, const Block* block, const Tile* tile, const float* in,     \
                                       float* out, const float* residual, float* partial) {                        \
        sparse_tile(s, block, tile, in, out, residual, partial, R, C, S, SPARSE_OUTPUTS((R) * (C)));               \
    }
#define SPARSE_NAME(R, C, S) sparse_##R##_##C##_##S,

SPARSE_TILES(SPARSE_KERNEL)

static const SparseKernel sparse_kernels[] = {
    SPARSE_TILES(SPARSE_NAME)
};

// The part of a convolution that a task computes. Tile-major: all groups of outputs of a tile come first, so that
// neighbouring tasks share inputs. Otherwise all tiles of a group come first, which share weights.
typedef struct {
    int32_t group, image, tile;
} Part;

INLINE Part part_of(int32_t task, int32_t groups, int32_t images, int32_t tiles, int32_t tile_major) {
    if (tile_major) return (Part){task % groups, task / groups / tiles, task / groups % tiles};
    return (Part){task / tiles / images, task / tiles % images, task % tiles};
}

// One group of outputs on one tile of one image.
INLINE void sparse_group(const Sparse* s, int32_t group, int32_t image, const Tile* tile, float* scratch) {
    const float* in = s->in + image * s->in_image + tile->in;
    float* out = s->out + image * s->out_image + tile->out;
    const float* residual = s->epilogue.residual;
    if (residual) residual += image * s->epilogue.residual_image + tile->residual;
    for (int32_t b = s->groups[group]; b < s->groups[group + 1]; b++)
        sparse_kernels[tile->kernel](s, s->blocks + b, tile, in, out, residual, scratch);
}

// Tasks: one Part each.
static void run_sparse(const void* arguments, int32_t task, const Context* context) {
    const Sparse* s = arguments;
    Part part = part_of(task, s->group_count, s->images, s->tile_count, s->tile_major);
    sparse_group(s, part.group, part.image, s->tiles + part.tile, context->scratch);
}

// Tasks: images x tiles.
static void run_tilewise(const void* arguments, int32_t task, const Context* context) {
    const Sparse* parts[] = {((const Tilewise*)arguments)->first, ((const Tilewise*)arguments)->second};
    for (int p = 0; p < 2; p++) {
        const Sparse* s = parts[p];
        for (int32_t group = 0; group < s->group_count; group++)
            sparse_group(s, group, task / s->tile_count, s->tiles + task % s->tile_count, context->scratch);
    }
}

#endif
