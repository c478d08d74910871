// Border fills, changes of layout, and steps that do little arithmetic: pooling and elementwise steps.
#ifndef ST3_MOVES_H
#define ST3_MOVES_H

#include "epilogue.h"

// ---------------------------------------------------------------- between rows of a matrix and lanes

// X(lane, apart) for every lane; both compilers want the lanes of a shuffle as constants.
#if LANES == 4
#define EACH_LANE(X, apart) X(0, apart), X(1, apart), X(2, apart), X(3, apart)
#else
#define FOUR_LANES(X, l, apart) X(l, apart), X(l + 1, apart), X(l + 2, apart), X(l + 3, apart)
#if LANES == 8
#define EACH_LANE(X, apart) FOUR_LANES(X, 0, apart), FOUR_LANES(X, 4, apart)
#else
#define EACH_LANE(X, apart) \
    FOUR_LANES(X, 0, apart), FOUR_LANES(X, 4, apart), FOUR_LANES(X, 8, apart), FOUR_LANES(X, 12, apart)
#endif
#endif
#define LOWER(l, apart) ((l) & (apart) ? LANES + (l) - (apart) : (l))
#define UPPER(l, apart) ((l) & (apart) ? LANES + (l) : (l) + (apart))

#if defined(__clang__)
#define SHUFFLE(a, b, lane, apart) __builtin_shufflevector(a, b, EACH_LANE(lane, apart))
#else
#define SHUFFLE(a, b, lane, apart) __builtin_shuffle(a, b, (ivec){EACH_LANE(lane, apart)})
#endif

// For each pair of vectors `apart` from each other, swap the lanes that are `apart` from each other.
#define SWAP_LANES(v, apart)                                         \
    UNROLL for (int i = 0; i < LANES; i++) {                         \
        if (i & (apart)) continue;                                   \
        vec a = v[i], b = v[i + (apart)];                            \
        v[i] = SHUFFLE(a, b, LOWER, apart);                          \
        v[i + (apart)] = SHUFFLE(a, b, UPPER, apart);                \
    }

// LANES vectors, transposed in registers.
INLINE void transpose(vec v[LANES]) {
    SWAP_LANES(v, 1)
    SWAP_LANES(v, 2)
#if LANES > 4
    SWAP_LANES(v, 4)
#endif
#if LANES > 8
    SWAP_LANES(v, 8)
#endif
}

// Tasks: LANES columns of the matrix each.
static void run_transpose(const void* arguments, int32_t task, const Context* context) {
    const Transpose* t = arguments;
    const float* in = t->in_slot < 0 ? t->in : context->slots[t->in_slot];
    float* out = t->out_slot < 0 ? t->out : context->slots[t->out_slot];
    int32_t first = task * LANES, count = t->columns - first < LANES ? t->columns - first : LANES;
    for (int32_t x = 0; x < t->width; x++) {
        vec v[LANES];
        if (t->to_rows) {
            const float* from = in + first * t->plane + x * LANES;
            for (int32_t i = 0; i < LANES; i++) v[i] = i < count ? load(from + i * t->plane) : (vec){0};
            transpose(v);
            for (int32_t l = 0; l < LANES; l++) {
                int64_t row = (int64_t)l * t->width + x;
                if (row >= t->rows) break;
                float* to = out + row * t->columns + first;
                if (count == LANES) store_unaligned(to, v[l]);
                else memcpy(to, &v[l], count * 4);
            }
        } else {
            for (int32_t l = 0; l < LANES; l++) {
                int64_t row = (int64_t)l * t->width + x;
                const float* from = in + row * t->columns + first;
                v[l] = (vec){0};
                if (row >= t->rows) continue;
                if (count == LANES) v[l] = load_unaligned(from);
                else memcpy(&v[l], from, count * 4);
            }
            transpose(v);
            for (int32_t i = 0; i < count; i++) store(out + (first + i) * t->plane + x * LANES, v[i]);
        }
    }
}

// ---------------------------------------------------------------- borders and other layouts

static void fill_border(const Border* b, float* plane, int32_t first, int32_t end) {
    const int32_t* entry = b->entries + first * 3;
    int32_t last = -1;
    ivec index = {0}, mask = {0};
    const vec outside = (vec)((ivec){0} + (int32_t)b->outside);
    for (int32_t i = first; i < end; i++, entry += 3) {
        if (entry[2] != last) {  // the entries of a part are sorted by shuffle
            last = entry[2];
            index = *(const ivec*)(b->shuffles + (int64_t)last * 2 * LANES);
            mask = *(const ivec*)(b->shuffles + ((int64_t)last * 2 + 1) * LANES);
        }
        store(plane + entry[0], blend(mask, permute(load(plane + entry[1]), index), outside));
    }
}

// Tasks: parts x planes.
static void run_border(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Border* b = arguments;
    int32_t part = task / b->planes;
    fill_border(b, b->field + task % b->planes * b->plane, b->starts[part], b->starts[part + 1]);
}

INLINE vec gather_or_fill(const float* in, const int32_t* index, float fill) {
    ivec at = *(const unaligned_ivec*)index;
    ivec outside = at < 0;
    return blend(outside, broadcast(fill), gather(in, at & ~outside));
}

// A square: LANES vectors whose every lane is LANES consecutive floats of the source. Loaded as rows and transposed.
INLINE void move_square(const float* in, float* out, const int32_t* index, float fill) {
    vec square[LANES];
    UNROLL for (int l = 0; l < LANES; l++) square[l] = index[l] < 0 ? broadcast(fill) : load_unaligned(in + index[l]);
    transpose(square);
    UNROLL for (int i = 0; i < LANES; i++) store_unaligned(out + i * LANES, square[i]);
}

static void move_plane(const Move* m, const float* in, float* out, const int32_t* index) {
    for (int64_t v = 0; v + 1 < m->vectors;) {
        if (m->squares && m->squares[v]) {
            move_square(in, out + v * LANES, index + v * LANES, m->fill);
            v += LANES;
        } else {
            store_unaligned(out + v * LANES, gather_or_fill(in, index + v * LANES, m->fill));
            v++;
        }
    }
    index += (m->vectors - 1) * LANES;
    vec last = gather_or_fill(in, index, m->fill);
    memcpy(out + (m->vectors - 1) * LANES, &last, m->last_lanes * 4);
}

// Tasks: images x parts x ranges of planes.
static void run_move(const void* arguments, int32_t task, const Context* context) {
    const Move* m = arguments;
    int32_t ranges = (m->planes + m->planes_per_task - 1) / m->planes_per_task;
    int32_t range = task % ranges, part = task / ranges % m->parts, image = task / ranges / m->parts;
    const float* in = (m->in_slot < 0 ? m->in : context->slots[m->in_slot]) + image * m->in_image + part * m->in_part;
    float* out = (m->out_slot < 0 ? m->out : context->slots[m->out_slot]) + image * m->out_image + part * m->out_part;
    int32_t end = (range + 1) * m->planes_per_task;
    if (end > m->planes) end = m->planes;
    for (int32_t p = range * m->planes_per_task; p < end; p++)
        move_plane(m, in + p * m->in_plane, out + p * m->out_plane, m->index + part * m->index_image);
}

// Tasks: images x ranges of planes.
static void run_resample(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Resample* r = arguments;
    int32_t ranges = (r->planes + r->planes_per_task - 1) / r->planes_per_task;
    int32_t range = task % ranges, image = task / ranges, end = (range + 1) * r->planes_per_task;
    if (end > r->planes) end = r->planes;
    const float* in = r->in + image * r->in_image;
    float* out = r->out + image * r->out_image;
    for (int32_t v = 0; v < r->vectors; v++) {
        int64_t first = (int64_t)v * r->taps * LANES;
        for (int32_t p = range * r->planes_per_task; p < end; p++) {  // the taps stay in the L1 cache
            vec total = {0};
            for (int32_t t = 0; t < r->taps; t++)
                total += gather_or_fill(in + p * r->in_plane, r->index + first + t * LANES, 0) *
                         load(r->weights + first + t * LANES);
            store(out + p * r->out_plane + (int64_t)v * LANES, total);
        }
    }
}

// ---------------------------------------------------------------- pooling and elementwise steps

// The maximum or the scaled sum of each window in some rows of a plane.
static void window_plane(const Window* w, const float* in, float* out, int32_t first, int32_t end) {
    for (int32_t y = first; y < end; y++)
        for (int32_t x = 0; x < w->width; x++) {
            const char* from = (const char*)(in + y * w->in_row + x * w->in_column);
            int64_t at = ((int64_t)y * w->width + x) * LANES;
            vec v = load((const float*)(from + w->taps[0]));
            if (w->scale) {
                for (int32_t t = 1; t < w->tap_count; t++) v += load((const float*)(from + w->taps[t]));
                v *= load(w->scale + at);
            } else if (w->has_bytes) {
                for (int32_t t = 1; t < w->tap_count; t++) {
                    bytes next = (bytes)load((const float*)(from + w->taps[t]));
                    v = blend((ivec)(next > (bytes)v), (vec)next, v);
                }
            } else {
                for (int32_t t = 1; t < w->tap_count; t++) {
                    vec next = load((const float*)(from + w->taps[t]));
                    v = blend((next > v) | (next != next), next, v);
                }
            }
            if (w->mask) v = apply_mask(v, *(const ivec*)(w->mask + at));
            store(out + y * w->out_row + x * LANES, v);
        }
}

// Tasks: parts x planes.
static void run_window(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Window* w = arguments;
    int32_t part = task / w->planes, plane = task % w->planes;
    window_plane(w, w->in + plane * w->in_plane, w->out + plane * w->out_plane, w->height * part / w->parts,
                 w->height * (part + 1) / w->parts);
}

// The mean of each plane. Tasks: groups of images; the lanes of an image are adjacent.
static void run_average(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Average* a = arguments;
    int32_t lanes = LANES / a->image_lanes;  // per image
    float* out = a->out + (int64_t)task * a->image_lanes * a->channels;
    for (int32_t c = 0; c < a->channels; c++) {
        const float* from = a->in + task * a->in_image + c * a->in_plane;
        vec total = {0};
        for (int32_t y = 0; y < a->height; y++)
            for (int32_t x = 0; x < a->width; x++) total += load(from + y * a->in_row + x * LANES);
        for (int32_t n = 0; n < a->image_lanes; n++) {
            float mean = 0;
            for (int32_t l = 0; l < lanes; l++) mean += total[n * lanes + l];
            out[(int64_t)n * a->channels + c] = mean * a->scale;
        }
    }
}

// Tasks: planes of all images.
static void run_combine(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Combine* c = arguments;
    int32_t channel = task % c->channels, image = task / c->channels;
    const float* in = c->in + image * c->in_image + channel * c->in_plane;
    float* out = c->out + image * c->out_image + channel * c->out_plane;
    const float* residual = c->epilogue.residual;
    if (residual) residual += image * c->epilogue.residual_image + channel * c->epilogue.residual_plane;
    vec scale = broadcast(c->scale ? c->scale[channel] : 1.0f), shift = broadcast(c->shift ? c->shift[channel] : 0.0f);
    const Clamp clamp = clamp_of(&c->epilogue);
    for (int32_t y = 0; y < c->height; y++)
        for (int32_t x = 0; x < c->width; x++) {
            const int32_t* mask = c->epilogue.mask ? c->epilogue.mask + ((int64_t)y * c->width + x) * LANES : 0;
            vec v = load(in + y * c->in_row + x * LANES) * scale + shift;
            const float* addend = residual ? residual + y * c->epilogue.residual_row + x * LANES : 0;
            store(out + y * c->out_row + x * LANES, add_clamp_mask(v, addend, clamp, mask));
        }
    if (c->epilogue.function)
        activate_tile(out, c->out_row, c->height, c->width, c->epilogue.function, c->epilogue.mask, c->width * LANES);
}

// One number per image, in the lanes of that image.
INLINE vec spread_images(const float* numbers, int64_t image, int32_t image_lanes) {
    vec v;
    for (int l = 0; l < LANES; l++) v[l] = numbers[l / (LANES / image_lanes) * image];
    return v;
}

// The sum or the product of two values, one of which may be repeated over channels or over the pixels of each image.
// Tasks: planes of all images.
static void run_pair(const void* arguments, int32_t task, const Context* context) {
    const Pair* p = arguments;
    int32_t channel = task % p->channels, image = task / p->channels;
    const float* in = p->in + image * p->in_image + channel * p->in_plane;
    float* out = p->out + image * p->out_image + channel * p->out_plane;
    const float* other = p->other_slot < 0 ? p->other : context->slots[p->other_slot];
    other += channel * p->other_plane;
    vec number = {0};
    if (p->image_lanes) number = spread_images(other + (int64_t)image * p->image_lanes * p->other_image, p->other_image,
                                               p->image_lanes);
    else other += image * p->other_image;
    const Clamp clamp = clamp_of(&p->epilogue);
    for (int32_t y = 0; y < p->height; y++)
        for (int32_t x = 0; x < p->width; x++) {
            const int32_t* mask = p->epilogue.mask ? p->epilogue.mask + ((int64_t)y * p->width + x) * LANES : 0;
            vec a = load(in + y * p->in_row + x * LANES);
            vec b = p->image_lanes ? number : load(other + y * p->other_row + x * LANES);
            store(out + y * p->out_row + x * LANES, add_clamp_mask(p->is_product ? a * b : a + b, 0, clamp, mask));
        }
    if (p->epilogue.function)
        activate_tile(out, p->out_row, p->height, p->width, p->epilogue.function, p->epilogue.mask, p->width * LANES);
}

#endif
