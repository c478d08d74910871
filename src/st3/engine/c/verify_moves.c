// What the kernels of moves.h and transpose.h read and write.
#include "verify.h"

int st3_check_width(Check* check, int32_t height, int32_t width) {
    return REQUIRE(check, height >= 1 && width >= 1 && is_int((wide)width * lanes_of(check)), "width");
}

int st3_check_pixels(Check* check, const void* reference, int32_t height, int32_t width, const char* field) {
    return is_null(reference) || st3_constant(check, reference, (wide)height * width, vector_bytes(check), field);
}

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

int verify_Border(Check* check, const Border* b, int32_t tasks) {
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

int verify_Move(Check* check, const Move* m, int32_t tasks) {
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

int verify_Transpose(Check* check, const Transpose* t, int32_t tasks) {
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

int verify_Window(Check* check, const Window* w, int32_t tasks) {
    Place in, out;
    return REQUIRE(check, w->planes >= 1 && w->parts >= 1 && (wide)w->planes * w->parts == tasks, "tasks") &&
           REQUIRE(check, is_int((wide)w->height * w->parts), "parts") &&
           st3_arena(check, w->in, &in, "in") && st3_arena(check, w->out, &out, "out") &&
           st3_check_window(check, w, in, out, steps(w->in_plane, w->planes), steps(w->out_plane, w->planes));
}

int verify_Average(Check* check, const Average* a, int32_t tasks) {
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

int verify_Combine(Check* check, const Combine* c, int32_t tasks) {
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
