// Layer norm and RMS norm over the channels of each pixel, and group norm over the pixels of some channels.
#ifndef ST3_NORMS_H
#define ST3_NORMS_H

#include "epilogue.h"
#include "lanes.h"
#include "plan.h"


INLINE vec inverse_root(vec x) {
    vec v;
    for (int l = 0; l < LANES; l++) v[l] = 1.0f / sqrtf(x[l]);
    return v;
}

// Normalise `count` adjacent vectors. Centred, the variance is that of the differences from the mean.
INLINE void norm_vectors(const Norm* n, const float* in, float* out, const int32_t* mask, const int count) {
    const float part = 1.0f / n->channels;
    vec mean[NORM_VECTORS], factor[NORM_VECTORS];
    UNROLL for (int i = 0; i < count; i++) mean[i] = factor[i] = (vec){0};
    if (n->is_centred) {
        for (int32_t c = 0; c < n->channels; c++)
            UNROLL for (int i = 0; i < count; i++) mean[i] += load(in + c * n->in_plane + i * LANES);
        UNROLL for (int i = 0; i < count; i++) mean[i] *= part;
    }
    for (int32_t c = 0; c < n->channels; c++) UNROLL for (int i = 0; i < count; i++) {
            vec x = load(in + c * n->in_plane + i * LANES) - mean[i];
            factor[i] += x * x;
        }
    UNROLL for (int i = 0; i < count; i++) factor[i] = inverse_root(factor[i] * part + n->eps);
    for (int32_t c = 0; c < n->channels; c++) {
        vec scale = broadcast(n->scale ? n->scale[c] : 1.0f), shift = broadcast(n->shift ? n->shift[c] : 0.0f);
        UNROLL for (int i = 0; i < count; i++) {
            vec x = (load(in + c * n->in_plane + i * LANES) - mean[i]) * factor[i] * scale + shift;
            if (mask) x = apply_mask(x, *(const ivec*)(mask + i * LANES));
            store(out + c * n->out_plane + i * LANES, x);
        }
    }
}

// Tasks: runs of NORM_VECTORS vectors in the rows of all images.
static void run_norm(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const Norm* n = arguments;
    int32_t runs = (n->width + NORM_VECTORS - 1) / NORM_VECTORS;
    int32_t x = task % runs * NORM_VECTORS, y = task / runs % n->height, image = task / runs / n->height;
    const float* in = n->in + image * n->in_image + y * n->in_row + x * LANES;
    float* out = n->out + image * n->out_image + y * n->out_row + x * LANES;
    const int32_t* mask = n->mask ? n->mask + ((int64_t)y * n->width + x) * LANES : 0;
    if (x + NORM_VECTORS <= n->width) {
        norm_vectors(n, in, out, mask, NORM_VECTORS);
        return;
    }
    for (; x < n->width; x++, in += LANES, out += LANES, mask = mask ? mask + LANES : 0)
        norm_vectors(n, in, out, mask, 1);
}

// The mean over the lanes of each image, in all its lanes.
INLINE vec image_means(vec total, int32_t image_lanes, float part) {
    int32_t lanes = LANES / image_lanes;  // per image
    vec v;
    for (int32_t n = 0; n < image_lanes; n++) {
        float sum = 0;
        for (int32_t l = 0; l < lanes; l++) sum += total[n * lanes + l];
        for (int32_t l = 0; l < lanes; l++) v[n * lanes + l] = sum * part;
    }
    return v;
}

// Tasks: groups of channels of all images. The second pass corrects the mean: where a plane is constant, as those of dead
// channels are, a rounded mean would be all that is left of it, divided by the root of eps.
static void run_group_norm(const void* arguments, int32_t task, const Context* context) {
    (void)context;
    const GroupNorm* n = arguments;
    int32_t first = task % n->groups * n->channels, image = task / n->groups;
    const float* in = n->in + image * n->in_image + first * n->in_plane;
    float* out = n->out + image * n->out_image + first * n->out_plane;
    vec mean = {0}, factor = {0};
    for (int pass = 0; pass < 2; pass++) {
        vec total = {0}, squares = {0};
        for (int32_t c = 0; c < n->channels; c++) for (int32_t y = 0; y < n->height; y++) {
                vec row = {0}, row_squares = {0};
                for (int32_t x = 0; x < n->width; x++) {
                    vec v = load(in + c * n->in_plane + y * n->in_row + x * LANES) - mean;
                    if (n->mask) v = apply_mask(v, *(const ivec*)(n->mask + ((int64_t)y * n->width + x) * LANES));
                    row += v;
                    row_squares += v * v;
                }
                total += row;
                squares += row_squares;
            }
        vec rest = image_means(total, n->image_lanes, n->part);
        mean += rest;
        if (pass) factor = inverse_root(image_means(squares, n->image_lanes, n->part) - rest * rest + n->eps);
    }
    for (int32_t c = 0; c < n->channels; c++) {
        vec scale = broadcast(n->scale ? n->scale[first + c] : 1.0f);
        vec shift = broadcast(n->shift ? n->shift[first + c] : 0.0f);
        for (int32_t y = 0; y < n->height; y++) for (int32_t x = 0; x < n->width; x++) {
                vec v = load(in + c * n->in_plane + y * n->in_row + x * LANES);
                v = (v - mean) * factor * scale + shift;
                if (n->mask) v = apply_mask(v, *(const ivec*)(n->mask + ((int64_t)y * n->width + x) * LANES));
                store(out + c * n->out_plane + y * n->out_row + x * LANES, v);
            }
    }
}

#endif
