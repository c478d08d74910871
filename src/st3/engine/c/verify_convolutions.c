// What the kernels of sparse.h, quantised.h, dense.h and lanewise.h read and write.
#include "verify.h"

// ---------------------------------------------------------------- sparse

// `kind`: whose kernels the tiles have.
static int begin_lists(Check* check, const Sparse* s, int32_t kind, Cursor* cursor) {
    *cursor = (Cursor){0};
    Grid grid = {s->tiles, s->tile_count, s->in_row, s->in_column, s->out_row, s->epilogue.residual_row, s->mask_row};
    const int32_t* groups = st3_constant(check, s->groups, (wide)s->group_count + 1, 4, "groups");
    return REQUIRE(check, s->group_count >= 1, "group_count") && groups &&
           st3_check_ascending(check, groups, s->group_count, "groups") &&
           st3_check_tiles(check, kind, &grid, 0, &cursor->tiles);
}

int st3_begin_sparse(Check* check, const Sparse* s, Cursor* cursor) { return begin_lists(check, s, SPARSE, cursor); }

// What the lists of one group refer to.
typedef struct {
    Range offsets;
    int32_t first, last;  // outputs; none if last < first
    int is_empty, has_partial;
    int64_t sums;  // partial sums
} Lists;

// Lists lie one after another, without gaps, in the order of the groups.
static int read_block(Check* check, const Sparse* s, const Block* block, Cursor* cursor, Lists* lists) {
    const int32_t outputs = cursor->tiles.outputs;
    if (!REQUIRE(check, block->bundles >= 0, "blocks: bundles")) return 0;
    if (!REQUIRE(check, block->bundle == cursor->bundles && block->items == cursor->items, "blocks: items")) return 0;
    const wide bundles = (wide)cursor->bundles + block->bundles;
    const int32_t* output = st3_constant(check, s->outputs, bundles * outputs, 4, "outputs");
    const int32_t* length = st3_constant(check, s->lengths, bundles, 4, "lengths");
    if (!output || !length) return 0;
    output += cursor->bundles * outputs;
    length += cursor->bundles;
    for (int64_t i = 0; i < (int64_t)block->bundles * outputs; i++) {
        if (!REQUIRE(check, output[i] >= -1, "outputs")) return 0;
        if (output[i] < 0) continue;
        if (!REQUIRE(check, block->base >= 0 && output[i] >= block->base, "blocks: base")) return 0;
        if (output[i] < lists->first) lists->first = output[i];
        if (output[i] > lists->last) lists->last = output[i];
        const int64_t sums = (int64_t)output[i] - block->base + 1;
        if (sums > lists->sums) lists->sums = sums;
    }
    wide items = cursor->items;
    for (int32_t i = 0; i < block->bundles; i++) {
        if (!REQUIRE(check, length[i] >= 0, "lengths")) return 0;
        items += (wide)length[i] * outputs;
    }
    const Item* all = st3_constant(check, s->items, items, sizeof(Item), "items");
    if (!all) return 0;
    for (int64_t i = cursor->items; i < items; i += outputs) {
        const uint32_t* offset = &all[i].offset;  // a bundle stores its offsets first, then its weights
        for (int32_t k = 0; k < outputs; k++) {
            lists->offsets = lists->is_empty ? at(offset[k]) : join(lists->offsets, at(offset[k]));
            lists->is_empty = 0;
        }
    }
    cursor->items = items;
    cursor->bundles += block->bundles;
    return 1;
}

static int read_lists(Check* check, const Sparse* s, Cursor* cursor, int32_t group, Lists* lists) {
    const int32_t* groups = st3_constant(check, s->groups, (wide)s->group_count + 1, 4, "groups");
    const int32_t begin = groups[group], end = groups[group + 1];
    const Block* blocks = st3_constant(check, s->blocks, end, sizeof(Block), "blocks");
    *lists = (Lists){.first = INT32_MAX, .last = -1, .is_empty = 1, .has_partial = end - begin > 1, .sums = 1};
    if (!blocks || !REQUIRE(check, begin < end, "groups")) return 0;
    for (int32_t b = begin; b < end; b++)
        if (!REQUIRE(check, blocks[b].first == (b == begin), "blocks: first") ||
            !REQUIRE(check, blocks[b].last == (b == end - 1), "blocks: last") ||
            !read_block(check, s, blocks + b, cursor, lists))
            return 0;
    return 1;
}

// What the lists of a group read.
static int check_inputs(Check* check, const Sparse* s, const Cursor* cursor, const Lists* lists, const Ends* ends) {
    Range in = sum(cursor->tiles.in, steps(ends->in_image, ends->images));
    in = sum(in, sum(lists->offsets, at(s->lowest_offset)));
    return lists->is_empty || st3_inside_aligned(check, ends->in, in, "in");
}

int st3_check_sparse(Check* check, const Sparse* s, Cursor* cursor, int32_t group, const Ends* ends) {
    Lists lists;
    if (!read_lists(check, s, cursor, group, &lists)) return 0;
    if (!REQUIRE(check, is_int(lists.last + 1ll), "outputs")) return 0;
    if (!st3_constant(check, s->bias, lists.last < 0 ? 1 : (wide)lists.last + 1, 4, "bias")) return 0;
    if (lists.has_partial && !st3_check_partial(check, &cursor->tiles, lists.sums)) return 0;
    if (!check_inputs(check, s, cursor, &lists, ends)) return 0;
    return lists.last < lists.first ||
           st3_check_results(check, &s->epilogue, &cursor->tiles, ends, s->out_plane, lists.first, lists.last);
}

static int check_all_sparse(Check* check, const Sparse* s) {
    Cursor cursor;
    Ends ends;
    if (!st3_whole_ends(check, s->in, s->out, s->in_image, s->out_image, s->images, &ends)) return 0;
    if (!st3_begin_sparse(check, s, &cursor)) return 0;
    for (int32_t group = 0; group < s->group_count; group++)
        if (!st3_check_sparse(check, s, &cursor, group, &ends)) return 0;
    return 1;
}

int st3_verify_Sparse(Check* check, const Sparse* s, int32_t tasks) {
    return st3_check_tasks(check, tasks, s->group_count, s->tile_count, s->images) && check_all_sparse(check, s);
}

int st3_verify_Tilewise(Check* check, const Tilewise* t, int32_t tasks) {
    const Sparse* first = st3_nested(check, t->first, SPARSE, "first");
    const Sparse* second = st3_nested(check, t->second, SPARSE, "second");
    return first && second && REQUIRE(check, first->tile_count == second->tile_count, "tile_count") &&
           REQUIRE(check, first->images == second->images, "images") &&
           st3_check_tasks(check, tasks, 1, first->tile_count, first->images) && check_all_sparse(check, first) &&
           check_all_sparse(check, second);
}

// ---------------------------------------------------------------- quantised

// The outputs of a group are first .. end - 1, `together` to a plane; sums of all of them are in the scratch buffer.
static int check_quantised_group(Check* check, const Sparse* s, Cursor* cursor, int32_t group, int32_t first,
                                 int32_t end, int32_t together, const Ends* ends) {
    Lists lists;
    const int32_t* groups = st3_constant(check, s->groups, (wide)s->group_count + 1, 4, "groups");
    const Block* blocks = st3_constant(check, s->blocks, groups[group + 1], sizeof(Block), "blocks");
    if (!blocks || !read_lists(check, s, cursor, group, &lists)) return 0;
    for (int32_t b = groups[group]; b < groups[group + 1]; b++)
        if (!REQUIRE(check, blocks[b].base == first, "blocks: base")) return 0;
    return REQUIRE(check, first < end && first % together == 0 && end % together == 0 && is_int(end), "bounds") &&
           REQUIRE(check, lists.last < end, "outputs") &&
           st3_check_partial(check, &cursor->tiles, (int64_t)end - first) &&
           check_inputs(check, s, cursor, &lists, ends) &&
           st3_check_results(check, &s->epilogue, &cursor->tiles, ends, s->out_plane, first / together,
                             end / together - 1);
}

int st3_verify_Quantised(Check* check, const Quantised* q, int32_t tasks) {
    Cursor cursor;
    Ends ends;
    const Sparse* s = st3_nested(check, q->lists, SPARSE, "lists");
    if (!s || !st3_check_tasks(check, tasks, s->group_count, s->tile_count, s->images)) return 0;
    if (!st3_whole_ends(check, s->in, s->out, s->in_image, s->out_image, s->images, &ends)) return 0;
    const int32_t* bounds = st3_constant(check, q->bounds, (wide)s->group_count + 1, 4, "bounds");
    if (!bounds || !st3_check_ascending(check, bounds, s->group_count, "bounds")) return 0;
    if (!st3_constant(check, q->scale, bounds[s->group_count], 4, "scale")) return 0;
    if (!st3_constant(check, s->bias, bounds[s->group_count], 4, "bias")) return 0;
    if (!begin_lists(check, s, QUANTISED, &cursor)) return 0;
    for (int32_t group = 0; group < s->group_count; group++)
        if (!check_quantised_group(check, s, &cursor, group, bounds[group], bounds[group + 1], q->to_floats ? 1 : 4,
                                   &ends))
            return 0;
    return 1;
}

int st3_verify_Convert(Check* check, const Convert* c, int32_t tasks) {
    Place in, out;
    if (!st3_check_width(check, c->height, c->width)) return 0;
    if (!REQUIRE(check, c->planes >= 1 && c->channels >= 1 && is_int((wide)c->planes * 4), "planes")) return 0;
    if (!REQUIRE(check, ((int64_t)c->channels + 3) / 4 == c->planes, "channels")) return 0;
    if (!REQUIRE(check, tasks % c->planes == 0, "tasks")) return 0;
    const int32_t images = tasks / c->planes;
    Range read = sum(steps(c->in_row, c->height), steps(lanes_of(check), c->width));
    Range write = sum(steps(c->out_row, c->height), steps(lanes_of(check), c->width));
    read = sum(read, sum(steps(c->in_image, images), steps(c->in_plane, c->is_back ? c->planes : c->channels)));
    write = sum(write, sum(steps(c->out_image, images), steps(c->out_plane, c->is_back ? c->channels : c->planes)));
    return st3_check_pixels(check, c->mask, c->height, c->width, "mask") && st3_arena(check, c->in, &in, "in") &&
           st3_arena(check, c->out, &out, "out") && st3_inside_aligned(check, in, read, "in") &&
           st3_inside_aligned(check, out, write, "out");
}

// ---------------------------------------------------------------- dense

int st3_begin_dense(Check* check, const Dense* d, Cursor* cursor) {
    *cursor = (Cursor){0};
    Grid grid = {d->tiles, d->tile_count, d->in_row, d->in_column, d->out_row, d->epilogue.residual_row, d->mask_row};
    if (!REQUIRE(check, d->group_count >= 1 && d->block_count >= 1, "block_count")) return 0;
    const int32_t* bounds = st3_constant(check, d->bounds, (wide)d->group_count + 1, 4, "bounds");
    const int32_t* blocks = st3_constant(check, d->blocks, (wide)d->block_count + 1, 4, "blocks");
    if (!bounds || !blocks || !st3_check_ascending(check, bounds, d->group_count, "bounds")) return 0;
    if (!st3_check_ascending(check, blocks, d->block_count, "blocks")) return 0;
    const int32_t end = blocks[d->block_count];
    const int32_t* taps = st3_constant(check, d->taps, end, 4, "taps");
    if (!taps || !st3_check_tiles(check, DENSE, &grid, 0, &cursor->tiles)) return 0;
    if (!REQUIRE(check, blocks[0] < end, "blocks")) return 0;
    Range all = at(taps[blocks[0]]);
    for (int32_t t = blocks[0]; t < end; t++) all = join(all, at(taps[t]));
    cursor->tiles.in = sum(cursor->tiles.in, all);
    return REQUIRE(check, is_int((wide)d->group_count * d->block_count), "block_count");
}

int st3_check_dense(Check* check, const Dense* d, Cursor* cursor, int32_t group, const Ends* ends) {
    const int32_t* bounds = st3_constant(check, d->bounds, (wide)d->group_count + 1, 4, "bounds");
    const int32_t* blocks = st3_constant(check, d->blocks, (wide)d->block_count + 1, 4, "blocks");
    const int64_t* starts = st3_constant(check, d->starts, (wide)d->group_count * d->block_count, 8, "starts");
    if (!bounds || !blocks || !starts) return 0;
    const int32_t first = bounds[group], end = bounds[group + 1], outputs = cursor->tiles.outputs;
    if (!REQUIRE(check, first < end && is_int(end), "bounds")) return 0;
    const int64_t padded = ((int64_t)end - first + outputs - 1) / outputs * outputs;
    if (!st3_constant(check, d->bias, first + padded, 4, "bias")) return 0;
    for (int32_t b = 0; b < d->block_count; b++) {
        const int64_t start = starts[(int64_t)group * d->block_count + b];
        const wide weights = start + (wide)padded * (blocks[b + 1] - blocks[b]);
        if (!REQUIRE(check, start >= 0, "starts") || !st3_constant(check, d->weights, weights, 4, "weights")) return 0;
    }
    if (d->block_count > 1 && !st3_check_partial(check, &cursor->tiles, padded)) return 0;
    return st3_inside_aligned(check, ends->in, sum(cursor->tiles.in, steps(ends->in_image, ends->images)), "in") &&
           st3_check_results(check, &d->epilogue, &cursor->tiles, ends, d->out_plane, first, end - 1);
}

int st3_verify_Dense(Check* check, const Dense* d, int32_t tasks) {
    Cursor cursor;
    Ends ends;
    if (!st3_check_tasks(check, tasks, d->group_count, d->tile_count, d->images)) return 0;
    if (!st3_whole_ends(check, d->in, d->out, d->in_image, d->out_image, d->images, &ends)) return 0;
    if (!st3_begin_dense(check, d, &cursor)) return 0;
    for (int32_t group = 0; group < d->group_count; group++)
        if (!st3_check_dense(check, d, &cursor, group, &ends)) return 0;
    return 1;
}

// ---------------------------------------------------------------- lanewise

// The lanes that the spans of a tile read, as a range. The spans of all tiles lie one after another.
static int read_spans(Check* check, const Lanewise* a, const Tile* tile, int32_t* next, Range* found) {
    const int64_t count = st3_constant_bytes(check, a->spans) / sizeof(Span);
    const Span* spans = st3_constant(check, a->spans, 1, sizeof(Span), "spans");
    if (!spans || !REQUIRE(check, tile->kernel == *next, "tiles: kernel")) return 0;
    for (;;) {
        if (!REQUIRE(check, *next < count, "spans")) return 0;
        const Span* span = spans + (*next)++;
        const int32_t* variant = span->kernel < 0 ? 0 : st3_variant(check, LANEWISE, span->kernel);
        if (!REQUIRE(check, variant, "spans: kernel")) return 0;
        Range lanes = rectangle(span->lane, a->lane_row, variant[0], 1, variant[1]);
        if (!REQUIRE(check, lanes.low >= 0 && lanes.high < vector_bytes(check), "spans: lane")) return 0;
        *found = span == spans + tile->kernel ? lanes : join(*found, lanes);
        if (span->is_last) return 1;
    }
}

int st3_begin_lanewise(Check* check, const Lanewise* a, Cursor* cursor) {
    *cursor = (Cursor){0};
    Tiles* tiles = &cursor->tiles;
    if (!REQUIRE(check, a->group_count >= 1 && a->tile_count >= 1 && a->tap_count >= 1, "tap_count")) return 0;
    if (!REQUIRE(check, a->images >= 1 && is_int((wide)a->tile_count * a->images), "images")) return 0;
    const Tile* tile = st3_constant(check, a->tiles, a->tile_count, sizeof(Tile), "tiles");
    const int32_t* bounds = st3_constant(check, a->bounds, (wide)a->group_count + 1, 4, "bounds");
    const int32_t* taps = st3_constant(check, a->taps, (wide)a->tap_count + LANEWISE_PREFETCH, 4, "taps");
    const int32_t* variant = st3_variant(check, LANEWISE, 0);
    if (!tile || !bounds || !taps || !REQUIRE(check, variant, "kernels")) return 0;
    if (!st3_check_ascending(check, bounds, a->group_count, "bounds")) return 0;
    tiles->outputs = variant[3];
    tiles->vectors = 1;
    int32_t next = 0;
    for (int32_t t = 0; t < a->tile_count; t++, tile++) {
        Range lanes = at(0);
        if (!read_spans(check, a, tile, &next, &lanes)) return 0;
        Tiles own = {sum(at((wide)tile->in * 4), lanes), at((wide)tile->out * 4), at((wide)tile->residual * 4),
                     at((wide)tile->mask * 4), 0, 0};
        tiles->in = t ? join(tiles->in, own.in) : own.in;
        tiles->out = t ? join(tiles->out, own.out) : own.out;
        tiles->residual = t ? join(tiles->residual, own.residual) : own.residual;
        tiles->mask = t ? join(tiles->mask, own.mask) : own.mask;
    }
    Range all = at(taps[0]);
    for (int32_t t = 0; t < a->tap_count; t++) all = join(all, at(taps[t]));
    tiles->in = sum(tiles->in, all);
    return REQUIRE(check, (wide)lanes_of(check) * tiles->outputs <= check->plan->scratch, "scratch");
}

int st3_check_lanewise(Check* check, const Lanewise* a, Cursor* cursor, int32_t group, const Ends* ends) {
    const int32_t* bounds = st3_constant(check, a->bounds, (wide)a->group_count + 1, 4, "bounds");
    const int64_t* starts = st3_constant(check, a->starts, (wide)a->group_count + 1, 8, "starts");
    if (!bounds || !starts) return 0;
    const int32_t first = bounds[group], end = bounds[group + 1], outputs = cursor->tiles.outputs;
    if (!REQUIRE(check, first < end && is_int(end), "bounds")) return 0;
    const int64_t padded = ((int64_t)end - first + outputs - 1) / outputs * outputs, start = starts[group];
    if (!REQUIRE(check, start >= 0 && start % lanes_of(check) == 0 && starts[group + 1] >= start, "starts")) return 0;
    return st3_constant(check, a->weights, starts[group + 1], 4, "starts") &&
           st3_constant(check, a->weights, start + (wide)padded * a->tap_count, 4, "weights") &&
           st3_constant(check, a->bias, first + padded, 4, "bias") &&
           st3_inside(check, ends->in, sum(cursor->tiles.in, steps(ends->in_image, ends->images)), 4, "in") &&
           st3_check_results(check, &a->epilogue, &cursor->tiles, ends, a->out_plane, first, end - 1);
}

int st3_verify_Lanewise(Check* check, const Lanewise* a, int32_t tasks) {
    Cursor cursor;
    Ends ends;
    if (!st3_check_tasks(check, tasks, a->group_count, a->tile_count, a->images)) return 0;
    if (!st3_whole_ends(check, a->in, a->out, a->in_image, a->out_image, a->images, &ends)) return 0;
    if (!st3_begin_lanewise(check, a, &cursor)) return 0;
    for (int32_t group = 0; group < a->group_count; group++)
        if (!st3_check_lanewise(check, a, &cursor, group, &ends)) return 0;
    return 1;
}

// ---------------------------------------------------------------- depthwise

// Channels first .. last; `ends->in` is the place of the first of them.
int st3_check_depthwise(Check* check, const Depthwise* d, const Ends* ends, int64_t in_plane, int32_t first,
                        int32_t last) {
    Tiles tiles;
    Grid grid = {d->tiles, d->tile_count, d->in_row, 0, d->out_row, d->epilogue.residual_row, d->mask_row};
    if (!st3_check_tiles(check, DEPTHWISE, &grid, 3, &tiles)) return 0;
    Range in = sum(sum(tiles.in, at(-(wide)d->first_tap * 4)), steps(ends->in_image, ends->images));
    in = sum(in, steps(in_plane, (int64_t)last - first + 1));
    return REQUIRE(check, is_int(9 * ((wide)last + 1)), "channels") &&
           st3_constant(check, d->weights, 9 * ((wide)last + 1), 4, "weights") &&
           st3_constant(check, d->bias, (wide)last + 1, 4, "bias") && st3_inside_aligned(check, ends->in, in, "in") &&
           st3_check_results(check, &d->epilogue, &tiles, ends, d->out_plane, first, last);
}

int st3_verify_Depthwise(Check* check, const Depthwise* d, int32_t tasks) {
    Ends ends;
    if (!REQUIRE(check, d->channels >= 1 && d->channels_per_task >= 1, "channels_per_task")) return 0;
    if (!REQUIRE(check, is_int((wide)d->channels + d->channels_per_task), "channels_per_task")) return 0;
    int32_t ranges = (d->channels + d->channels_per_task - 1) / d->channels_per_task;
    return st3_whole_ends(check, d->in, d->out, d->in_image, d->out_image, d->images, &ends) &&
           st3_check_starts(check, d->starts, d->parts, d->tile_count) &&
           st3_check_tasks(check, tasks, ranges, d->parts, d->images) &&
           st3_check_depthwise(check, d, &ends, d->in_plane, 0, d->channels - 1);
}
