// A sparse convolution in int8 for int8_blocks.py: weights are kept or dropped in blocks of four input channels.
//
// A vector holds 16 pixels of four neighbouring channels, one byte each, so that a lane is one pixel. For every output
// there is a list of (offset of a block's inputs, its four weights as one word). One vpdpbusd multiplies and adds 64
// bytes. Its signed operand is the one that may lie in memory, and the weights are signed, so inputs are loaded first.
// The sums of a tile stay in registers, those of a group of outputs in `sums` until all blocks of input channels are
// added; then they become bytes again, four outputs to a lane: the layout that the next layer reads.
#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
#define LANES 16
#define PREFETCH_BYTES 1024
// Outputs computed at a time: small tiles take several, to hide the latency of vpdpbusd.
#define OUTPUTS(vectors) ((vectors) > 14 ? 1 : (vectors) > 7 ? 2 : (vectors) > 3 ? 4 : 8)
// Tile sizes in rows and columns; one row has any number of columns, for planes without a border.
#define TILES(X)                                                                                                    \
    X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(1, 5) X(1, 6) X(1, 7) X(1, 8) X(1, 9) X(1, 10) X(1, 11) X(1, 12) X(1, 13)     \
    X(1, 14) X(1, 15) X(1, 16) X(1, 17) X(1, 18) X(1, 19) X(1, 20) X(1, 21) X(1, 22) X(1, 23) X(1, 24) X(1, 25)     \
    X(1, 26) X(1, 27) X(1, 28) X(2, 2) X(7, 1) X(7, 2) X(7, 3) X(7, 4) X(2, 7) X(3, 7) X(4, 7) X(2, 14)

typedef struct {  // one block of input channels of one group of outputs; numpy's packing.BLOCK
    int64_t items, bundle;
    int32_t bundles, first, last, base;
} Block;

typedef struct {  // bytes from vector (0, 0); kernel is an index of `kernels`
    int32_t in, out, mask, kernel;
} Tile;

typedef struct {
    const uint8_t* in;        // vector (0, 0) of the first plane
    uint8_t* out;
    const int32_t* items;     // for each bundle of outputs: offsets, weights, offsets, weights, ...
    const int32_t* outputs;   // of each bundle; -1: none
    const int32_t* lengths;   // of the lists of each bundle
    const Block* blocks;
    const int32_t* bounds;    // the first output of each group, and the end
    const int32_t* bias;
    const float* scale;
    const Tile* tiles;
    const uint8_t* mask;      // 0xff for pixels inside the picture; NULL if all are
    const int32_t* border;    // (to, from, shuffle) in words, sorted by shuffle
    const int32_t* shuffles;  // lane indices and masks
    int32_t* sums;            // scratch
    int32_t* all_sums;        // NULL, or where every sum is kept, to be checked: output, vector, lane
    int64_t lowest_offset, in_row, out_row, out_plane, out_origin;  // bytes
    int32_t group_count, block_count, tile_count, border_count, planes, vectors, width;
} Layer;

typedef void (*Kernel)(const Layer*, const Tile*);

INLINE __m512i load(const void* from) { return _mm512_load_si512(from); }

INLINE void add_block(const Layer* l, const Block* b, const uint8_t* in, const int rows, const int columns,
                      const int outputs) {
    const int vectors = rows * columns;
    const int32_t* item = l->items + b->items * 2;
    const int32_t *output = l->outputs + b->bundle * outputs, *length = l->lengths + b->bundle;
    const int64_t row = l->in_row;
    for (int i = 0; i < b->bundles; i++, output += outputs) {
        __m512i sums[28];
        UNROLL for (int k = 0; k < outputs; k++) {
            const int32_t o = output[k] < 0 ? b->base : output[k];
            const int32_t* from = l->sums + (int64_t)(o - b->base) * vectors * LANES;
            const __m512i bias = _mm512_set1_epi32(l->bias[o]);
            UNROLL for (int v = 0; v < vectors; v++) sums[k * vectors + v] = b->first ? bias : load(from + v * LANES);
        }
        const int32_t* end = item + (int64_t)length[i] * outputs * 2;
        for (; item < end; item += 2 * outputs) {
            __builtin_prefetch((const char*)item + PREFETCH_BYTES);
            UNROLL for (int k = 0; k < outputs; k++) {
                const uint8_t* from = in + (uint32_t)item[k];
                __m512i weights = _mm512_set1_epi32(item[outputs + k]);
                __asm__("" : "+r"(from), "+v"(weights));  // one register each
                UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < columns; c++) {
                    __m512i* sum = sums + k * vectors + r * columns + c;
                    *sum = _mm512_dpbusd_epi32(*sum, load(from + r * row + c * 64), weights);
                }
            }
        }
        UNROLL for (int k = 0; k < outputs; k++) {
            if (output[k] < 0) continue;
            int32_t* to = l->sums + (int64_t)(output[k] - b->base) * vectors * LANES;
            UNROLL for (int v = 0; v < vectors; v++) _mm512_store_si512(to + v * LANES, sums[k * vectors + v]);
        }
    }
}

// Sums times scale, rounded, cut to 0 .. 255 (which is the ReLU) and packed: byte k of a lane is output 4 q + k.
INLINE void requantise(const Layer* l, const Tile* tile, int32_t begin, int32_t end, const int rows,
                       const int columns) {
    const int vectors = rows * columns;
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    for (int32_t o = begin; o < end; o += 4) {
        const int32_t* from = l->sums + (int64_t)(o - begin) * vectors * LANES;
        uint8_t* to = l->out + tile->out + o / 4 * l->out_plane;
        __m512 scale[4];
        UNROLL for (int k = 0; k < 4; k++) scale[k] = _mm512_set1_ps(l->scale[o + k]);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) {
                __m512i x[4];
                UNROLL for (int k = 0; k < 4; k++) {
                    __m512 sum = _mm512_cvtepi32_ps(load(from + (k * vectors + r * columns + c) * LANES));
                    x[k] = _mm512_cvtps_epi32(_mm512_mul_ps(sum, scale[k]));
                }
                __m512i low = _mm512_packs_epi32(x[0], x[1]), high = _mm512_packs_epi32(x[2], x[3]);
                __m512i bytes = _mm512_shuffle_epi8(_mm512_packus_epi16(low, high), order);
                if (l->mask) bytes = _mm512_and_si512(bytes, load(l->mask + tile->mask + (r * l->width + c) * 64));
                _mm512_store_si512(to + r * l->out_row + c * 64, bytes);
            }
    }
}

static void keep_sums(const Layer* l, const Tile* tile, int32_t begin, int32_t end, int rows, int columns) {
    for (int32_t o = begin; o < end; o++)
        for (int v = 0; v < rows * columns; v++)
            for (int i = 0; i < LANES; i++)
                l->all_sums[(o * (int64_t)l->vectors + tile->mask / 64 + v / columns * l->width + v % columns) * LANES +
                            i] = l->sums[((o - begin) * rows * columns + v) * LANES + i];
}

#define KERNEL(R, C)                                                                       \
    static void tile_##R##_##C(const Layer* l, const Tile* tile) {                         \
        for (int32_t g = 0; g < l->group_count; g++) {                                     \
            const Block* block = l->blocks + (int64_t)g * l->block_count;                  \
            for (int32_t b = 0; b < l->block_count; b++)                                   \
                add_block(l, block + b, l->in + tile->in + l->lowest_offset, R, C, OUTPUTS((R) * (C))); \
            if (l->all_sums) keep_sums(l, tile, l->bounds[g], l->bounds[g + 1], R, C);     \
            requantise(l, tile, l->bounds[g], l->bounds[g + 1], R, C);                     \
        }                                                                                  \
    }
TILES(KERNEL)

#define NAME(R, C) tile_##R##_##C,
static const Kernel kernels[] = {TILES(NAME)};
#define SIZE(R, C) R, C, OUTPUTS((R) * (C)),
const int32_t tile_sizes[] = {TILES(SIZE)};
const int32_t tile_count = sizeof(kernels) / sizeof(kernels[0]);

// Pixels around a lane's patch are copies from the lanes that own them.
static void fill_border(const Layer* l, int32_t* plane) {
    for (int32_t i = 0; i < l->border_count; i++) {
        const int32_t *entry = l->border + 3 * i, *shuffle = l->shuffles + entry[2] * 2 * LANES;
        __m512i moved = _mm512_permutexvar_epi32(load(shuffle), load(plane + entry[1]));
        _mm512_store_si512(plane + entry[0], _mm512_and_si512(moved, load(shuffle + LANES)));
    }
}

void run(const Layer* layers, int32_t count, int32_t times) {
    for (int32_t t = 0; t < times; t++)
        for (int32_t i = 0; i < count; i++) {
            const Layer* l = layers + i;
            for (int32_t n = 0; n < l->tile_count; n++) kernels[l->tiles[n].kernel](l, l->tiles + n);
            for (int32_t p = 0; l->border_count && p < l->planes; p++)
                fill_border(l, (int32_t*)(l->out - l->out_origin + p * l->out_plane));
        }
}
