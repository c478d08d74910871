// Convolutions of bytes, and conversions between numbers and bytes.
//
// A lane holds a word, the bytes of four adjacent channels of a pixel, where other kernels have a float; so layouts,
// borders and lists are the same. Weights are skipped in blocks of four channels. Sums are int32_t. They stay in the
// scratch buffer until all blocks of input channels are added; then four outputs become the bytes of a word.
#ifndef ST3_QUANTISED_H
#define ST3_QUANTISED_H

#include "sparse.h"

typedef void (*QuantisedKernel)(const Sparse*, const Block*, const float*, int32_t*);

// ---------------------------------------------------------------- sums

// The weights of a block in all lanes: as words, or for `multiply_pairs` as two words of 16-bit numbers.
typedef struct {
    ivec words, even, odd;
} Weights;

#if defined(__AVX512F__)
#define PAIRS(a, b) ((ivec)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))
#elif defined(__AVX2__)
#define PAIRS(a, b) ((ivec)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#else
#define PAIRS(a, b) (((a) << 16 >> 16) * ((b) << 16 >> 16) + ((a) >> 16) * ((b) >> 16))
#endif
#define LOW_BYTES 0x00ff00ff

// `has_dot`: the processor multiplies and adds four bytes in one instruction (VNNI).
INLINE Weights weights_of(int32_t word, const int has_dot) {
    typedef int16_t half __attribute__((vector_size(LANES * 4)));
    Weights w = {.words = (ivec){0} + word};
    if (has_dot) return w;
    w.even = (ivec)((half)w.words << 8 >> 8);
    w.odd = (ivec)((half)w.words >> 8);
    return w;
}

INLINE ivec add_products(ivec sum, ivec in, Weights weights, const int has_dot) {
#if defined(__AVX512F__)
    if (has_dot) {
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(in), "v"(weights.words));
        return sum;
    }
#endif
    (void)has_dot;
    return sum + PAIRS(in & LOW_BYTES, weights.even) + PAIRS((in >> 8) & LOW_BYTES, weights.odd);
}

INLINE void quantised_tile(const Sparse* s, const Block* block, const float* in, int32_t* partial, const int rows,
                           const int columns, const int step, const int outputs, const int has_dot) {
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
                const Weights weights = weights_of(item[outputs + k], has_dot);
                UNROLL for (int v = 0; v < vectors; v++) {
                    const ivec x = *(const ivec*)(from + v / columns * in_row + v % columns * in_column);
                    sums[k * vectors + v] = add_products(sums[k * vectors + v], x, weights, has_dot);
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

#define QUANTISED_KERNEL(R, C, S)                                                                                    \
    static void quantised_##R##_##C##_##S(const Sparse* s, const Block* b, const float* in, int32_t* partial) {      \
        quantised_tile(s, b, in, partial, R, C, S, SPARSE_OUTPUTS((R) * (C)), 0);                                    \
    }
#define QUANTISED_NAME(R, C, S) quantised_##R##_##C##_##S,
#define DOT_KERNEL(R, C, S)                                                                                          \
    static void dot_##R##_##C##_##S(const Sparse* s, const Block* b, const float* in, int32_t* partial) {            \
        quantised_tile(s, b, in, partial, R, C, S, SPARSE_OUTPUTS((R) * (C)), 1);                                    \
    }
#define DOT_NAME(R, C, S) dot_##R##_##C##_##S,

#if ACCUMULATORS > 14
#define QUANTISED_TILES(X) SMALL_QUANTISED_TILES(X) LARGE_QUANTISED_TILES(X)
#else
#define QUANTISED_TILES(X) SMALL_QUANTISED_TILES(X)
#endif

QUANTISED_TILES(QUANTISED_KERNEL)
static const QuantisedKernel quantised_kernels[] = {QUANTISED_TILES(QUANTISED_NAME)};
#if defined(__AVX512F__)
QUANTISED_TILES(DOT_KERNEL)
static const QuantisedKernel dot_kernels[] = {QUANTISED_TILES(DOT_NAME)};
#endif

static const QuantisedKernel* kernels_of_processor(void) {
#if defined(__AVX512F__)
    if (__builtin_cpu_supports("avx512vnni")) return dot_kernels;
#endif
    return quantised_kernels;
}

// Rows and columns of each kernel.
#define QUANTISED_SHAPE(R, C, S) {R, C},
static const int32_t quantised_shapes[][2] = {QUANTISED_TILES(QUANTISED_SHAPE)};

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
    const vec high = broadcast(e->high), residual_scale = broadcast(q->residual_scale);
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
                    y[k] = vec_min(high, y[k]);
                }
                const int32_t* mask = e->mask ? e->mask + tile->mask + r * s->mask_row + c * LANES : 0;
                store(to + r * s->out_row + c * LANES, (vec)put_outside(to_bytes(y), mask, q->outside));
            }
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
    const QuantisedKernel kernel = kernels_of_processor()[tile->kernel];
    for (int32_t b = s->groups[part.group]; b < s->groups[part.group + 1]; b++) kernel(s, s->blocks + b, in, partial);
    if (s->epilogue.function) requantise(q, part.group, tile, out, residual, partial, residual != 0, 1);
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
