// What the kernels of sparse.h read and write.
#include "verify.h"

int st3_begin_sparse(Check* check, const Sparse* s, Cursor* cursor) {
    *cursor = (Cursor){0};
    Grid grid = {s->tiles, s->tile_count, s->in_row, s->in_column, s->out_row, s->epilogue.residual_row, s->mask_row};
    const int32_t* groups = st3_constant(check, s->groups, (wide)s->group_count + 1, 4, "groups");
    return REQUIRE(check, s->group_count >= 1, "group_count") && groups &&
           st3_check_ascending(check, groups, s->group_count, "groups") &&
           st3_check_tiles(check, SPARSE, &grid, 0, &cursor->tiles);
}

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

int st3_check_sparse(Check* check, const Sparse* s, Cursor* cursor, int32_t group, const Ends* ends) {
    Lists lists;
    if (!read_lists(check, s, cursor, group, &lists)) return 0;
    if (!REQUIRE(check, is_int(lists.last + 1ll), "outputs")) return 0;
    if (!st3_constant(check, s->bias, lists.last < 0 ? 1 : (wide)lists.last + 1, 4, "bias")) return 0;
    if (lists.has_partial && !st3_check_partial(check, &cursor->tiles, lists.sums)) return 0;
    if (!lists.is_empty) {
        Range in = sum(cursor->tiles.in, steps(ends->in_image, ends->images));
        in = sum(in, sum(lists.offsets, at(s->lowest_offset)));
        if (!st3_inside_aligned(check, ends->in, in, "in")) return 0;
    }
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

int verify_Sparse(Check* check, const Sparse* s, int32_t tasks) {
    return st3_check_tasks(check, tasks, s->group_count, s->tile_count, s->images) && check_all_sparse(check, s);
}

int verify_Tilewise(Check* check, const Tilewise* t, int32_t tasks) {
    const Sparse* first = st3_nested(check, t->first, SPARSE, "first");
    const Sparse* second = st3_nested(check, t->second, SPARSE, "second");
    return first && second && REQUIRE(check, first->tile_count == second->tile_count, "tile_count") &&
           REQUIRE(check, first->images == second->images, "images") &&
           st3_check_tasks(check, tasks, 1, first->tile_count, first->images) && check_all_sparse(check, first) &&
           check_all_sparse(check, second);
}
