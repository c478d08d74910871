// The sum or the product of two values, one of which may be repeated over channels or over the pixels of each image.
#ifndef ST3_PAIRS_H
#define ST3_PAIRS_H

#include "epilogue.h"

// One number per image, in the lanes of that image.
INLINE vec spread_images(const float* numbers, int64_t image, int32_t image_lanes) {
    vec v;
    for (int l = 0; l < LANES; l++) v[l] = numbers[l / (LANES / image_lanes) * image];
    return v;
}

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
