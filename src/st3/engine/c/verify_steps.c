// What the kernels of moves.h, norms.h and rows.h read and write.
#include "verify.h"

// ---------------------------------------------------------------- border

int st3_check_border(Check* check, const Border* b, Place field, Range planes) {
    const int32_t lanes = lanes_of(check);
    if (!REQUIRE(check, b->entry_count >= 0 && b->shuffle_count >= 0, "entry_count")) return 0;
    const int32_t* entry = st3_constant(check, b->entries, (wide)b->entry_count * 3, 4, "entries");
    const int32_t* index = st3_constant(check, b->shuffles, (wide)b->shuffle_count * 2 * lanes, 4, "shuffles");
    if (!entry || !index) return 0;
    for (int32_t i = 0; i < b->shuffle_count; i++, index += 2 * lanes)
        for (int32_t l = 0; l < lanes; l++)
            if (!REQUIRE(check, index[l] >= 0 && index[l] < lanes, "shuffles")) return 0;
    for (int32_t i = 0; i < b->entry_count; i++, entry += 3)
        if (!REQUIRE(check, entry[2] >= 0 && entry[2] < b->shuffle_count, "entries") ||
            !st3_inside_aligned(check, field, sum(planes, at((wide)entry[0] * 4)), "entries") ||
            !st3_inside_aligned(check, field, sum(planes, at((wide)entry[1] * 4)), "entries"))
            return 0;
    return 1;
}

int st3_verify_Border(Check* check, const Border* b, int32_t tasks) {
    Place field;
    return REQUIRE(check, b->planes >= 1 && b->parts >= 1 && (wide)b->planes * b->parts == tasks, "tasks") &&
           st3_check_starts(check, b->starts, b->parts, b->entry_count) &&
           st3_arena(check, b->field, &field, "field") && st3_check_border(check, b, field, steps(b->plane, b->planes));
}

// ---------------------------------------------------------------- move

// The range that the vectors of one part gather from; a lane that is filled reads the first float.
static int read_index(Check* check, const Move* m, const int32_t* index, const uint8_t* squares, Range* found) {
    const int32_t lanes = lanes_of(check);
    *found = at(0);
    for (int64_t v = 0; v < m->vectors;) {
        const int is_square = squares && v + 1 < m->vectors && squares[v];
        const int64_t reach = is_square ? lanes : 1;
        for (int32_t l = 0; l < lanes; l++) {
            const int64_t first = index[v * lanes + l];
            if (first >= 0) *found = join(*found, steps_from(1, first, first + reach - 1));
        }
        if (!REQUIRE(check, !is_square || v + lanes < m->vectors, "squares")) return 0;
        v += reach;
    }
    return 1;
}

int st3_check_move(Check* check, const Move* m, Place in, Place out, Range in_planes, Range out_planes) {
    const int32_t lanes = lanes_of(check), parts = m->parts > 1 ? m->parts : 1;
    if (!REQUIRE(check, m->vectors >= 1, "vectors")) return 0;
    if (!REQUIRE(check, m->last_lanes >= 1 && m->last_lanes <= lanes, "last_lanes")) return 0;
    const wide each = (wide)m->vectors * lanes;
    if (!REQUIRE(check, parts == 1 || (m->index_image >= each && is_null(m->squares)), "index_image")) return 0;
    const int32_t* index = st3_constant(check, m->index, parts == 1 ? each : (wide)m->index_image * parts, 4, "index");
    const uint8_t* squares = is_null(m->squares) ? 0 : st3_constant(check, m->squares, m->vectors, 1, "squares");
    if (!index || (!squares && !is_null(m->squares))) return 0;
    const Range written = {0, (each - lanes + m->last_lanes - 1) * 4, 0};
    for (int32_t part = 0; part < parts; part++) {
        Range read;
        if (!read_index(check, m, index + part * (parts > 1 ? m->index_image : 0), squares, &read)) return 0;
        read = sum(sum(read, in_planes), at((wide)m->in_part * 4 * part));
        Range write = sum(sum(written, out_planes), at((wide)m->out_part * 4 * part));
        if (!st3_inside(check, in, read, 4, "in") || !st3_inside(check, out, write, 4, "out")) return 0;
    }
    return 1;
}

int st3_verify_Move(Check* check, const Move* m, int32_t tasks) {
    Place in, out;
    if (!REQUIRE(check, m->planes >= 1 && m->planes_per_task >= 1 && m->parts >= 1, "planes")) return 0;
    if (!REQUIRE(check, is_int((wide)m->planes + m->planes_per_task), "planes_per_task")) return 0;
    const int32_t ranges = (m->planes + m->planes_per_task - 1) / m->planes_per_task;
    const wide each = (wide)ranges * m->parts;  // per image
    return REQUIRE(check, tasks % each == 0, "tasks") &&
           st3_slot_or_arena(check, m->in_slot, m->in, 0, &in, "in") &&
           st3_slot_or_arena(check, m->out_slot, m->out, 1, &out, "out") &&
           st3_check_move(check, m, in, out, sum(steps(m->in_plane, m->planes), steps(m->in_image, tasks / each)),
                          sum(steps(m->out_plane, m->planes), steps(m->out_image, tasks / each)));
}

int st3_verify_Resample(Check* check, const Resample* r, int32_t tasks) {
    const int32_t lanes = lanes_of(check);
    Place in, out;
    if (!REQUIRE(check, r->planes >= 1 && r->planes_per_task >= 1, "planes")) return 0;
    if (!REQUIRE(check, is_int((wide)r->planes + r->planes_per_task), "planes_per_task")) return 0;
    if (!REQUIRE(check, r->vectors >= 1 && r->taps >= 1, "taps")) return 0;
    const int32_t ranges = (r->planes + r->planes_per_task - 1) / r->planes_per_task;
    if (!REQUIRE(check, tasks % ranges == 0, "tasks")) return 0;
    const wide count = (wide)r->vectors * r->taps * lanes;
    const int32_t* index = st3_constant(check, r->index, count, 4, "index");
    if (!index || !st3_constant(check, r->weights, count, 4, "weights")) return 0;
    Range read = at(0);  // what a lane with nothing to read reads
    for (wide i = 0; i < count; i++)
        if (index[i] >= 0) read = join(read, at((wide)index[i] * 4));
    const int32_t images = tasks / ranges;
    read = sum(read, sum(steps(r->in_plane, r->planes), steps(r->in_image, images)));
    const Range write = sum(steps(lanes, r->vectors), sum(steps(r->out_plane, r->planes), steps(r->out_image, images)));
    return st3_arena(check, r->in, &in, "in") && st3_arena(check, r->out, &out, "out") &&
           st3_inside(check, in, read, 4, "in") && st3_inside_aligned(check, out, write, "out");
}

int st3_verify_Transpose(Check* check, const Transpose* t, int32_t tasks) {
    const int32_t lanes = lanes_of(check);
    Place in, out;
    if (!st3_check_width(check, 1, t->width) || !REQUIRE(check, t->rows >= 1 && t->columns >= 1, "columns")) return 0;
    if (!REQUIRE(check, is_int((wide)t->columns + lanes), "columns")) return 0;
    if (!REQUIRE(check, (t->columns + lanes - 1) / lanes == tasks, "tasks")) return 0;
    if (!st3_slot_or_arena(check, t->in_slot, t->in, 0, &in, "in")) return 0;
    if (!st3_slot_or_arena(check, t->out_slot, t->out, 1, &out, "out")) return 0;
    const Range field = sum(steps(t->plane, t->columns), steps(lanes, t->width));
    const Range rows = sum(steps(t->columns, t->rows), steps(1, t->columns));
    if (!REQUIRE(check, (t->to_rows ? t->in_slot : t->out_slot) < 0, "slot")) return 0;
    return st3_inside_aligned(check, t->to_rows ? in : out, field, "plane") &&
           st3_inside(check, t->to_rows ? out : in, rows, 4, "rows");
}

// ---------------------------------------------------------------- pooling and elementwise steps

int st3_check_window(Check* check, const Window* w, Place in, Place out, Range in_planes, Range out_planes) {
    if (!st3_check_width(check, w->height, w->width) || !REQUIRE(check, w->tap_count >= 1, "tap_count")) return 0;
    const int32_t* taps = st3_constant(check, w->taps, w->tap_count, 4, "taps");
    if (!taps) return 0;
    Range read = at(taps[0]);
    for (int32_t t = 1; t < w->tap_count; t++) read = join(read, at(taps[t]));
    read = sum(read, sum(steps(w->in_row, w->height), steps(w->in_column, w->width)));
    Range write = sum(steps(w->out_row, w->height), steps(lanes_of(check), w->width));
    return st3_check_pixels(check, w->scale, w->height, w->width, "scale") &&
           st3_check_pixels(check, w->mask, w->height, w->width, "mask") &&
           st3_inside_aligned(check, in, sum(read, in_planes), "in") &&
           st3_inside_aligned(check, out, sum(write, out_planes), "out");
}

int st3_verify_Window(Check* check, const Window* w, int32_t tasks) {
    Place in, out;
    return REQUIRE(check, w->planes >= 1 && w->parts >= 1 && (wide)w->planes * w->parts == tasks, "tasks") &&
           REQUIRE(check, is_int((wide)w->height * w->parts), "parts") &&
           st3_arena(check, w->in, &in, "in") && st3_arena(check, w->out, &out, "out") &&
           st3_check_window(check, w, in, out, steps(w->in_plane, w->planes), steps(w->out_plane, w->planes));
}

int st3_verify_Average(Check* check, const Average* a, int32_t tasks) {
    Place in, out;
    const int32_t lanes = lanes_of(check);
    if (!REQUIRE(check, a->image_lanes >= 1 && lanes % a->image_lanes == 0, "image_lanes")) return 0;
    if (!st3_check_width(check, a->height, a->width) || !REQUIRE(check, a->channels >= 1, "channels")) return 0;
    Range read = sum(sum(steps(a->in_image, tasks), steps(a->in_plane, a->channels)),
                     sum(steps(a->in_row, a->height), steps(lanes, a->width)));
    Range write = {0, ((wide)tasks * a->image_lanes * a->channels - 1) * 4, 0};
    return st3_arena(check, a->in, &in, "in") && st3_arena(check, a->out, &out, "out") &&
           st3_inside_aligned(check, in, read, "in") && st3_inside(check, out, write, 4, "out");
}

int st3_verify_Combine(Check* check, const Combine* c, int32_t tasks) {
    const int32_t lanes = lanes_of(check);
    if (!st3_check_width(check, c->height, c->width)) return 0;
    if (!REQUIRE(check, c->channels >= 1 && tasks % c->channels == 0, "channels")) return 0;
    Ends ends = {.in_image = c->in_image, .out_image = c->out_image, .images = tasks / c->channels};
    if (!st3_arena(check, c->in, &ends.in, "in") || !st3_arena(check, c->out, &ends.out, "out")) return 0;
    const Range columns = steps(lanes, c->width);
    const Tiles tiles = {
        .in = sum(columns, steps(c->in_row, c->height)),
        .out = sum(columns, steps(c->out_row, c->height)),
        .residual = sum(columns, steps(c->epilogue.residual_row, c->height)),
        .mask = sum(columns, steps((int64_t)c->width * lanes, c->height)),
    };
    Range read = sum(tiles.in, sum(steps(c->in_image, ends.images), steps(c->in_plane, c->channels)));
    return (is_null(c->scale) || st3_constant(check, c->scale, c->channels, 4, "scale")) &&
           (is_null(c->shift) || st3_constant(check, c->shift, c->channels, 4, "shift")) &&
           st3_inside_aligned(check, ends.in, read, "in") &&
           st3_check_results(check, &c->epilogue, &tiles, &ends, c->out_plane, 0, c->channels - 1);
}

// ---------------------------------------------------------------- pairs and norms

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

int st3_verify_Pair(Check* check, const Pair* p, int32_t tasks) {
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

int st3_verify_Norm(Check* check, const Norm* n, int32_t tasks) {
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

int st3_verify_GroupNorm(Check* check, const GroupNorm* n, int32_t tasks) {
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

// ---------------------------------------------------------------- rows

static int check_slices(Check* check, const Rows* r) {
    const int32_t lanes = lanes_of(check);
    const int64_t* starts = st3_constant(check, r->starts, (wide)r->slices + 1, 8, "starts");
    const int32_t* order = st3_constant(check, r->order, (wide)r->slices * lanes, 4, "order");
    if (!starts || !order || !REQUIRE(check, starts[0] >= 0, "starts")) return 0;
    for (int32_t s = 0; s < r->slices; s++) {
        if (!REQUIRE(check, starts[s] <= starts[s + 1], "starts")) return 0;
        if (!REQUIRE(check, !is_null(r->index) || starts[s + 1] - starts[s] <= r->inputs, "starts")) return 0;
    }
    for (int64_t i = 0; i < (int64_t)r->slices * lanes; i++)
        if (!REQUIRE(check, order[i] >= -1 && order[i] < r->outputs, "order")) return 0;
    const wide count = (wide)starts[r->slices] * lanes;
    if (!st3_constant(check, r->weights, count, 4, "weights")) return 0;
    if (is_null(r->index)) return 1;
    const int32_t* index = st3_constant(check, r->index, count, 4, "index");
    for (int64_t i = 0; index && i < count; i++)
        if (!REQUIRE(check, index[i] >= 0 && index[i] < r->inputs, "index")) return 0;
    return index != 0;
}

int st3_verify_Rows(Check* check, const Rows* r, int32_t tasks) {
    Place in, out, residual;
    if (!REQUIRE(check, r->vectors >= 1 && r->inputs >= 1 && r->outputs >= 1, "vectors")) return 0;
    if (!REQUIRE(check, r->slices >= 1 && is_int((wide)r->slices * lanes_of(check)), "slices")) return 0;
    if (!REQUIRE(check, r->slices_per_task >= 1, "slices_per_task")) return 0;
    if (!REQUIRE(check, is_int((wide)r->slices + r->slices_per_task), "slices_per_task")) return 0;
    if (!REQUIRE(check, (r->slices + r->slices_per_task - 1) / r->slices_per_task == tasks, "tasks")) return 0;
    if (!REQUIRE(check, is_function(r->function), "function")) return 0;
    const Range read = {0, ((wide)r->vectors * r->inputs - 1) * 4, 0};
    const Range write = {0, ((wide)r->vectors * r->outputs - 1) * 4, 0};
    const int has_residual = r->residual_slot >= 0 || !is_null(r->residual);
    if (has_residual && !(st3_slot_or_arena(check, r->residual_slot, r->residual, 0, &residual, "residual") &&
                          st3_inside(check, residual, write, 4, "residual")))
        return 0;
    return st3_slot_or_arena(check, r->in_slot, r->in, 0, &in, "in") && st3_inside(check, in, read, 4, "in") &&
           st3_slot_or_arena(check, r->out_slot, r->out, 1, &out, "out") && st3_inside(check, out, write, 4, "out") &&
           st3_constant(check, r->bias, (wide)r->slices * lanes_of(check), 4, "bias") && check_slices(check, r);
}

int st3_verify_Rowwise(Check* check, const Rowwise* r, int32_t tasks) {
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
