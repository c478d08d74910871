// All kernels for one instruction set, whose name is ISA.
#include "attention.h"
#include "lanewise.h"
#include "moves.h"
#include "norms.h"
#include "quantised.h"
#include "rows.h"

// ---------------------------------------------------------------- a chain

static float* window_out(const Chain* c, int32_t image, int32_t channel) {
    return c->window->out + ((int64_t)image * c->bounds[c->group_count] + channel) * c->window->out_plane;
}

// A convolution and a channel-wise step as one, a few channels at a time. Tasks: groups of channels x images.
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

// ---------------------------------------------------------------- the table of kernels

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

#define SPARSE_SIZE(R, C, S) R, C, S, SPARSE_OUTPUTS((R) * (C)), SPARSE,
#define DENSE_SIZE(R, C, S) R, C, S, DENSE_OUTPUTS((R) * (C)), DENSE,
#define DEPTHWISE_SIZE(R, C, S) R, C, S, 1, DEPTHWISE,
#define QUANTISED_SIZE(R, C, S) R, C, S, SPARSE_OUTPUTS((R) * (C)), QUANTISED,
#define SPAN_SIZE(R, C, S) R, C, S, BUNDLE, LANEWISE,

static const int32_t sizes[] = {
    SPARSE_TILES(SPARSE_SIZE)
    DENSE_TILES(DENSE_SIZE)
    DEPTHWISE_TILES(DEPTHWISE_SIZE)
    QUANTISED_TILES(QUANTISED_SIZE)
    SPANS(SPAN_SIZE)
};

const Kernels JOIN(st3_kernels_, ISA) = {
    .name = TEXT(ISA),
    .lanes = LANES,
    .variant_count = sizeof sizes / sizeof *sizes / 5,
    .variants = sizes,
    .run = {[SPARSE] = run_sparse, [DENSE] = run_dense, [BORDER] = run_border, [MOVE] = run_move,
            [TRANSPOSE] = run_transpose, [WINDOW] = run_window, [AVERAGE] = run_average, [COMBINE] = run_combine,
            [ROWS] = run_rows, [CHAIN] = run_chain, [TILEWISE] = run_tilewise,
            [DEPTHWISE] = run_depthwise, [LANEWISE] = run_lanewise, [PAIR] = run_pair,
            [NORM] = run_norm, [GROUP_NORM] = run_group_norm, [ROWWISE] = run_rowwise,
            [ATTENTION] = run_attention, [NUMBERED] = run_numbered, [RESAMPLE] = run_resample,
            [QUANTISED] = run_quantised, [CONVERT] = run_convert},
};
