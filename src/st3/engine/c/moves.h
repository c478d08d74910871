// Border fills, changes of layout, and steps that do little arithmetic: pooling and elementwise steps.
#ifndef ST3_MOVES_H
#define ST3_MOVES_H

#include "epilogue.h"
#include "transpose.h"

static void fill_border(const Border* b, float* plane, int32_t first, int32_t end) {
    const int32_t* entry = b->entries + first * 3;
    int32_t last = -1;
    ivec index = {0}, mask = {0};
    for (int32_t i = first; i < end; i++, entry += 3) {
        if (entry[2] != last) {  // the entries of a part are sorted by shuffle
            last = entry[2];
            index = *(const ivec*)(b->shuffles + (int64_t)last * 2 * LANES);
            mask = *(const ivec*)(b->shuffles + ((int64_t)last * 2 + 1) * LANES);
        }
        store(plane + entry[0], apply_mask(permute(load(plane + entry[1]), index), mask));
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

#endif
