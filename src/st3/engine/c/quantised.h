// Convolutions of bytes, and conversions between numbers and bytes.
//
// A lane holds a word, the bytes of four adjacent channels of a pixel, where other kernels have a float; so layouts,
// borders and lists are the same. Weights are skipped in blocks of four channels. Sums are int32_t. They stay in the
// scratch buffer until all blocks of input channels are added; then four outputs become the bytes of a word.
#ifndef ST3_QUANTISED_H
#define ST3_QUANTISED_H

#include "sparse.h"

// ---------------------------------------------------------------- sums

// Rows, columns, column step and outputs per bundle of each kernel.
#define QUANTISED_SHAPE(R, C, S) {R, C, S, SPARSE_OUTPUTS((R) * (C))},
static const int32_t quantised_shapes[][4] = {QUANTISED_TILES(QUANTISED_SHAPE)};

#if defined(__AVX512F__)
#define PAIRS(a, b) ((ivec)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#define PAIRS(a, b) ((ivec)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#else
#define PAIRS(a, b) (((a) << 16 >> 16) * ((b) << 16 >> 16) + ((a) >> 16) * ((b) >> 16))
#endif
#define LOW_BYTES 0x00ff00ff

// Plain loops for tiles of any size, where no instruction multiplies and adds four bytes: float32 is faster there, so
// they only have to be right.
static void quantised_tile(const Sparse* s, const Block* block, const Tile* tile, const float* in, int32_t* partial) {
    typedef int16_t half __attribute__((vector_size(LANES * 4)));
    const int32_t *size = quantised_shapes[tile->kernel], rows = size[0], columns = size[1], outputs = size[3];
    const int64_t in_column = (size[2] ? size[2] * LANES : s->in_column) * 4;
    const int32_t* item = (const int32_t*)(s->items + block->items);
    const int32_t* output = s->outputs + block->bundle * outputs;
    for (int32_t i = 0; i < block->bundles; i++, output += outputs) {
        const int32_t length = s->lengths[block->bundle + i];
        for (int32_t k = 0; k < outputs; k++) {
            if (output[k] < 0) continue;
            int32_t* to = partial + (int64_t)(output[k] - block->base) * rows * columns * LANES;
            for (int32_t v = 0; v < rows * columns; v++, to += LANES) {
                const char* start = (const char*)in + s->lowest_offset + v / columns * s->in_row * 4 + v % columns * in_column;
                ivec sum = block->first ? (ivec){0} : *(const ivec*)to;
                for (const int32_t* each = item + k; each < item + 2 * (int64_t)length * outputs; each += 2 * outputs) {
                    const ivec x = *(const ivec*)(start + (uint32_t)each[0]);
                    const half weights = (half)((ivec){0} + each[outputs]);
                    sum += PAIRS(x & LOW_BYTES, (ivec)(weights << 8 >> 8)) + PAIRS((x >> 8) & LOW_BYTES, (ivec)(weights >> 8));
                }
                *(ivec*)to = sum;
            }
        }
        item += 2 * (int64_t)length * outputs;
    }
}

#if defined(__AVX512F__)
// vpdpbusd multiplies and adds four bytes. It is written in assembly, since compilers know it with flags only that would
// let them use other instructions of processors that have it.
INLINE void dot_tile(const Sparse* s, const Block* block, const float* in, int32_t* partial, const int rows,
                     const int columns, const int step, const int outputs) {
    const int64_t in_row = s->in_row * 4, in_column = (step ? step * LANES : s->in_column) * 4;
    const int vectors = rows * columns;
    const int32_t* item = (const int32_t*)(s->items + block->items);
    const char* start = (const char*)in + s->lowest_offset;
    PIN_POINTER(start);
    const int32_t* output = s->outputs + block->bundle * outputs;
    const int32_t* length = s->lengths + block->bundle;
    for (int i = 0; i < block->bundles; i++, output += outputs) {
        ivec sums[ACCUMULATORS];
        UNROLL for (int k = 0; k < outputs; k++) {
            const int32_t* from = partial + (int64_t)(output[k] < 0 ? 0 : output[k] - block->base) * vectors * LANES;
            UNROLL for (int v = 0; v < vectors; v++)
                sums[k * vectors + v] = block->first ? (ivec){0} : *(const ivec*)(from + v * LANES);
        }
        const int32_t* end = item + (int64_t)length[i] * outputs * 2;
        for (const char* line = (const char*)item; line < (const char*)end; line += 64)
            __builtin_prefetch(line + PREFETCH_BYTES);
        for (; item < end; item += 2 * outputs) {
            UNROLL for (int k = 0; k < outputs; k++) {
                const char* from = start + (uint32_t)item[k];
                PIN_POINTER(from);
                const ivec weights = (ivec){0} + item[outputs + k];
                UNROLL for (int v = 0; v < vectors; v++) {
                    const ivec x = *(const ivec*)(from + v / columns * in_row + v % columns * in_column);
                    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums[k * vectors + v]) : "v"(x), "v"(weights));
                }
            }
        }
        UNROLL for (int k = 0; k < outputs; k++) {
            if (output[k] < 0) continue;
            int32_t* to = partial + (int64_t)(output[k] - block->base) * vectors * LANES;
            UNROLL for (int v = 0; v < vectors; v++) *(ivec*)(to + v * LANES) = sums[k * vectors + v];
        }
    }
}

#define DOT_KERNEL(R, C, S)                                                                                          \
    static void dot_##R##_##C##_##S(const Sparse* s, const Block* b, const float* in, int32_t* partial) {            \
        dot_tile(s, b, in, partial, R, C, S, SPARSE_OUTPUTS((R) * (C)));                                             \
    }
#define DOT_NAME(R, C, S) dot_##R##_##C##_##S,

QUANTISED_TILES(DOT_KERNEL)
static void (*const dot_kernels[])(const Sparse*, const Block*, const float*, int32_t*) = {QUANTISED_TILES(DOT_NAME)};
#endif

// The sums of one group of outputs on one tile.
static void add_blocks(const Sparse* s, int32_t group, const Tile* tile, const float* in, int32_t* partial) {
    for (int32_t b = s->groups[group]; b < s->groups[group + 1]; b++) {
#if defined(__AVX512F__)
        if (__builtin_cpu_supports("avx512vnni")) {
            dot_kernels[tile->kernel](s, s->blocks + b, in, partial);
            continue;
        }
#endif
        quantised_tile(s, s->blocks + b, tile, in, partial);
    }
}

// ---------------------------------------------------------------- bytes

// Byte k of a word is y[k], rounded to the nearest (even) number and cut to 0 .. 255; no y may exceed 2^31.
INLINE ivec to_bytes(const vec y[4]) {
#if defined(__AVX512F__)
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m512i x[4];
    UNROLL for (int k = 0; k < 4; k++) x[k] = _mm512_cvtps_epi32((__m512)y[k]);
    __m512i low = _mm512_packs_epi32(x[0], x[1]), high = _mm512_packs_epi32(x[2], x[3]);
    return (ivec)_mm512_shuffle_epi8(_mm512_packus_epi16(low, high), order);
#else
    const vec magic = broadcast(12582912.0f);  // 1.5 * 2^23: the sum's last bits are the rounded number
    ivec word = {0};
    UNROLL for (int k = 0; k < 4; k++) {
        vec cut = vec_min(broadcast(255.0f), vec_max(broadcast(0.0f), y[k]));
        word |= ((ivec)(cut + magic) & 255) << 8 * k;
    }
    return word;
#endif
}

INLINE vec byte_of(ivec word, const int k) { return __builtin_convertvector((word >> 8 * k) & 255, vec); }

INLINE ivec put_outside(ivec word, const int32_t* mask, uint32_t outside) {
    if (!mask) return word;
    const ivec inside = *(const ivec*)mask;
    return (word & inside) | ((int32_t)outside & ~inside);
}

// Sums of a group of outputs on a tile as bytes.
INLINE void requantise(const Quantised* q, int32_t group, const Tile* tile, float* out, const float* residual,
                       const int32_t* partial, const int has_residual, const int has_function) {
    const Sparse* s = q->lists;
    const Epilogue* e = &s->epilogue;
    const int32_t rows = quantised_shapes[tile->kernel][0], columns = quantised_shapes[tile->kernel][1];
    const int32_t begin = q->bounds[group], end = q->bounds[group + 1];
    const int64_t apart = (int64_t)rows * columns * LANES;
    const vec most = broadcast(255.0f), residual_scale = broadcast(q->residual_scale);
    for (int32_t o = begin; o < end; o += 4, partial += 4 * apart) {
        vec scale[4], shift[4];
        UNROLL for (int k = 0; k < 4; k++) {
            scale[k] = broadcast(q->scale[o + k]);
            shift[k] = broadcast(s->bias[o + k]);
        }
        float* to = out + o / 4 * s->out_plane;
        const float* addend = has_residual ? residual + o / 4 * e->residual_plane : 0;
        const int32_t* sums = partial;
        for (int32_t r = 0; r < rows; r++)
            for (int32_t c = 0; c < columns; c++, sums += LANES) {
                vec y[4];
                const ivec word = has_residual ? (ivec)load(addend + r * e->residual_row + c * LANES) : (ivec){0};
                UNROLL for (int k = 0; k < 4; k++) {
                    y[k] = __builtin_convertvector(*(const ivec*)(sums + k * apart), vec) * scale[k] + shift[k];
                    if (has_residual) y[k] += byte_of(word, k) * residual_scale;
                    if (has_function) y[k] = activate(y[k], e->function) * q->out_scale + q->out_zero;
                    y[k] = vec_min(most, y[k]);
                }
                const int32_t* mask = e->mask ? e->mask + tile->mask + r * s->mask_row + c * LANES : 0;
                store(to + r * s->out_row + c * LANES, (vec)put_outside(to_bytes(y), mask, q->outside));
            }
    }
}

// Sums of a group of outputs on a tile as floats, a plane for each output.
static void finish_floats(const Quantised* q, int32_t group, const Tile* tile, float* out, const float* residual,
                          const int32_t* partial) {
    const Sparse* s = q->lists;
    const Epilogue* e = &s->epilogue;
    const int32_t rows = quantised_shapes[tile->kernel][0], columns = quantised_shapes[tile->kernel][1];
    const int32_t* mask = e->mask ? e->mask + tile->mask : 0;
    const Clamp clamp = clamp_of(e);
    for (int32_t o = q->bounds[group]; o < q->bounds[group + 1]; o++) {
        const vec scale = broadcast(q->scale[o]), shift = broadcast(s->bias[o]);
        float* to = out + o * s->out_plane;
        const float* addend = residual ? residual + o * e->residual_plane : 0;
        for (int32_t v = 0; v < rows * columns; v++, partial += LANES) {
            const int32_t r = v / columns, c = v % columns;
            const vec y = __builtin_convertvector(*(const ivec*)partial, vec) * scale + shift;
            store(to + r * s->out_row + c * LANES,
                  add_clamp_mask(y, addend ? addend + r * e->residual_row + c * LANES : 0, clamp,
                                 mask ? mask + r * s->mask_row + c * LANES : 0));
        }
        if (e->function) activate_tile(to, s->out_row, rows, columns, e->function, mask, s->mask_row);
    }
}

// Tasks: one Part each.
static void run_quantised(const void* arguments, int32_t task, const Context* context) {
    const Quantised* q = arguments;
    const Sparse* s = q->lists;
    const Part part = part_of(task, s->group_count, s->images, s->tile_count, s->tile_major);
    const Tile* tile = s->tiles + part.tile;
    const float* in = s->in + part.image * s->in_image + tile->in;
    float* out = s->out + part.image * s->out_image + tile->out;
    const float* residual = s->epilogue.residual;
    if (residual) residual += part.image * s->epilogue.residual_image + tile->residual;
    int32_t* partial = (int32_t*)context->scratch;
    add_blocks(s, part.group, tile, in, partial);
    if (q->to_floats) finish_floats(q, part.group, tile, out, residual, partial);
    else if (s->epilogue.function) requantise(q, part.group, tile, out, residual, partial, residual != 0, 1);
    else if (residual) requantise(q, part.group, tile, out, residual, partial, 1, 0);
    else requantise(q, part.group, tile, out, residual, partial, 0, 0);
}

// Tasks: planes of words of all images.
static void run_convert(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Convert* c = arguments;
    const int32_t plane = task % c->planes, image = task / c->planes;
    const int32_t first = 4 * plane, last = c->channels - 1;
    const vec scale = broadcast(c->scale), zero = broadcast(c->zero), most = broadcast(255.0f);
    for (int32_t y = 0; y < c->height; y++)
        for (int32_t x = 0; x < c->width; x++) {
            const int32_t* mask = c->mask ? c->mask + ((int64_t)y * c->width + x) * LANES : 0;
            const float* in = c->in + image * c->in_image + y * c->in_row + x * LANES;
            float* out = c->out + image * c->out_image + y * c->out_row + x * LANES;
            if (c->is_back) {
                const ivec word = (ivec)load(in + plane * c->in_plane);
                UNROLL for (int k = 0; k < 4; k++) {
                    if (first + k > last) continue;
                    const vec number = (byte_of(word, k) - zero) * scale;
                    store(out + (first + k) * c->out_plane, mask ? apply_mask(number, *(const ivec*)mask) : number);
                }
            } else {
                vec numbers[4];
                UNROLL for (int k = 0; k < 4; k++) {
                    const int32_t channel = first + k < last ? first + k : last;
                    numbers[k] = vec_min(most, load(in + channel * c->in_plane) * scale + zero);
                }
                store(out + plane * c->out_plane, (vec)put_outside(to_bytes(numbers), mask, c->outside));
            }
        }
}

#endif
