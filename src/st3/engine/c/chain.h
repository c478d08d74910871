// A convolution and a channel-wise step as one, a few channels at a time.
#ifndef ST3_CHAIN_H
#define ST3_CHAIN_H

#include "lanewise.h"
#include "depthwise.h"
#include "moves.h"

static float* window_out(const Chain* c, int32_t image, int32_t channel) {
    return c->window->out + ((int64_t)image * c->bounds[c->group_count] + channel) * c->window->out_plane;
}

// Tasks: groups of channels x images.
static void run_chain(const void* arguments, int32_t task, const Context* context) {
    const Chain* c = arguments;
    int32_t image = task % c->images, group = task / c->images;
    int32_t low = c->bounds[group], high = c->bounds[group + 1];
    float* middle = context->scratch + c->middle;
    float* moved = context->scratch + c->moved;

    if (c->sparse) {
        Sparse s = *c->sparse;
        s.out = middle + c->origin - low * c->plane;
        s.out_image = 0;
        for (int32_t t = 0; t < s.tile_count; t++) sparse_group(&s, group, image, s.tiles + t, context->scratch);
    } else if (c->lanewise) {
        Lanewise a = *c->lanewise;
        a.out = middle + c->origin - low * c->plane;
        a.out_image = 0;
        for (int32_t t = 0; t < a.tile_count; t++) lanewise_group(&a, group, image, t, context->scratch);
    } else {
        Dense d = *c->dense;
        d.out = middle + c->origin - low * c->plane;
        d.out_image = 0;
        for (int32_t t = 0; t < d.tile_count; t++) dense_group(&d, group, image, d.tiles + t, context->scratch);
    }
    for (int32_t p = low; p < high; p++) {
        float* plane = middle + (p - low) * c->plane;
        float* in = moved + (p - low) * c->moved_plane;
        if (c->border) fill_border(c->border, plane, 0, c->border->entry_count);
        if (c->move) move_plane(c->move, plane, in, c->move->index);
        if (c->depthwise) depthwise_plane(c->depthwise, in + c->moved_origin, image, p, 0, c->depthwise->tile_count);
        if (c->window) window_plane(c->window, in + c->moved_origin, window_out(c, image, p), 0, c->window->height);
    }
    if (c->next) {
        Sparse s = *c->next;
        s.in = moved + c->moved_origin - low * c->moved_plane;
        s.in_image = 0;
        for (int32_t t = 0; t < s.tile_count; t++) sparse_group(&s, group, image, s.tiles + t, context->scratch);
    }
}

#endif
