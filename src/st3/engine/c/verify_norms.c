// What the kernels of pairs.h, norms.h and rowwise.h read and write.
#include "verify.h"

// Fields of the same size: what is read and written of all channels of all images.
typedef struct {
    Place in, out;
    Range read, write;
} Fields;

static int find_fields(Check* check, const void* in, const void* out, Range read, Range write, Fields* f) {
    *f = (Fields){.read = read, .write = write};
    return st3_arena(check, in, &f->in, "in") && st3_arena(check, out, &f->out, "out") &&
           st3_inside_aligned(check, f->in, read, "in") && st3_inside_aligned(check, f->out, write, "out");
}

static Range whole(int64_t image, int32_t images, int64_t plane, int32_t channels, int64_t row, int32_t height,
                   int32_t width, int32_t lanes) {
    return sum(sum(steps(image, images), steps(plane, channels)), sum(steps(row, height), steps(lanes, width)));
}

static int check_factors(Check* check, const void* scale, const void* shift, wide count) {
    return (is_null(scale) || st3_constant(check, scale, count, 4, "scale")) &&
           (is_null(shift) || st3_constant(check, shift, count, 4, "shift"));
}

// The other value of a pair: one number per image and channel, or a field.
static int check_other(Check* check, const Pair* p, int32_t images) {
    Place other;
    if (p->image_lanes) {
        if (!REQUIRE(check, p->image_lanes >= 1 && lanes_of(check) % p->image_lanes == 0, "image_lanes")) return 0;
        if (!st3_slot_or_arena(check, p->other_slot, p->other, 0, &other, "other")) return 0;
        Range numbers = sum(steps(p->other_plane, p->channels), steps(p->other_image, (int64_t)images * p->image_lanes));
        return st3_inside(check, other, numbers, 4, "other");
    }
    if (!REQUIRE(check, p->other_slot < 0, "other_slot") || !st3_arena(check, p->other, &other, "other")) return 0;
    return st3_inside_aligned(check, other, whole(p->other_image, images, p->other_plane, p->channels, p->other_row,
                                                  p->height, p->width, lanes_of(check)), "other");
}

int verify_Pair(Check* check, const Pair* p, int32_t tasks) {
    const int32_t lanes = lanes_of(check);
    if (!st3_check_width(check, p->height, p->width)) return 0;
    if (!REQUIRE(check, p->channels >= 1 && tasks % p->channels == 0, "channels")) return 0;
    Ends ends = {.in_image = p->in_image, .out_image = p->out_image, .images = tasks / p->channels};
    const Range columns = steps(lanes, p->width);
    const Tiles tiles = {
        .out = sum(columns, steps(p->out_row, p->height)),
        .residual = sum(columns, steps(p->epilogue.residual_row, p->height)),
        .mask = sum(columns, steps((int64_t)p->width * lanes, p->height)),
    };
    Range read = whole(p->in_image, ends.images, p->in_plane, p->channels, p->in_row, p->height, p->width, lanes);
    return st3_arena(check, p->in, &ends.in, "in") && st3_arena(check, p->out, &ends.out, "out") &&
           st3_inside_aligned(check, ends.in, read, "in") && check_other(check, p, ends.images) &&
           st3_check_results(check, &p->epilogue, &tiles, &ends, p->out_plane, 0, p->channels - 1);
}

int verify_Norm(Check* check, const Norm* n, int32_t tasks) {
    Fields fields;
    const int32_t lanes = lanes_of(check);
    if (!st3_check_width(check, n->height, n->width) || !REQUIRE(check, n->channels >= 1, "channels")) return 0;
    const wide runs = ((wide)n->width + NORM_VECTORS - 1) / NORM_VECTORS * n->height;  // per image
    if (!REQUIRE(check, is_int(runs) && tasks % runs == 0, "tasks")) return 0;
    const int32_t images = tasks / (int32_t)runs;
    return check_factors(check, n->scale, n->shift, n->channels) &&
           st3_check_pixels(check, n->mask, n->height, n->width, "mask") &&
           find_fields(check, n->in, n->out,
                       whole(n->in_image, images, n->in_plane, n->channels, n->in_row, n->height, n->width, lanes),
                       whole(n->out_image, images, n->out_plane, n->channels, n->out_row, n->height, n->width, lanes),
                       &fields);
}

int verify_GroupNorm(Check* check, const GroupNorm* n, int32_t tasks) {
    Fields fields;
    const int32_t lanes = lanes_of(check);
    if (!st3_check_width(check, n->height, n->width)) return 0;
    if (!REQUIRE(check, n->image_lanes >= 1 && lanes % n->image_lanes == 0, "image_lanes")) return 0;
    if (!REQUIRE(check, n->groups >= 1 && n->channels >= 1 && tasks % n->groups == 0, "groups")) return 0;
    const wide channels = (wide)n->groups * n->channels;
    if (!REQUIRE(check, is_int(channels), "channels")) return 0;
    const int32_t all = (int32_t)channels, images = tasks / n->groups;
    return check_factors(check, n->scale, n->shift, channels) &&
           st3_check_pixels(check, n->mask, n->height, n->width, "mask") &&
           find_fields(check, n->in, n->out,
                       whole(n->in_image, images, n->in_plane, all, n->in_row, n->height, n->width, lanes),
                       whole(n->out_image, images, n->out_plane, all, n->out_row, n->height, n->width, lanes), &fields);
}

int verify_Rowwise(Check* check, const Rowwise* r, int32_t tasks) {
    Place in, out, other;
    if (!REQUIRE(check, r->columns >= 1 && is_int((wide)r->columns + lanes_of(check)), "columns")) return 0;
    if (!REQUIRE(check, is_function(r->function), "function")) return 0;
    if (!check_factors(check, r->scale, r->shift, r->columns)) return 0;
    const Range columns = steps(1, r->columns);
    if (r->other_slot >= 0 || !is_null(r->other)) {
        if (!st3_slot_or_arena(check, r->other_slot, r->other, 0, &other, "other")) return 0;
        Range read = sum(steps(r->other_row, tasks), r->other_row == 1 ? at(0) : columns);
        if (!st3_inside(check, other, read, 4, "other")) return 0;
    }
    return st3_slot_or_arena(check, r->in_slot, r->in, 0, &in, "in") &&
           st3_slot_or_arena(check, r->out_slot, r->out, 1, &out, "out") &&
           st3_inside(check, in, sum(steps(r->in_row, tasks), columns), 4, "in") &&
           st3_inside(check, out, sum(steps(r->columns, tasks), columns), 4, "out");
}
