// What the tiles of convolutions read and write, and their results (epilogue.h); depthwise convolutions (depthwise.h).
#include "verify.h"

int st3_check_tiles(Check* check, int32_t kind, const Grid* grid, int32_t reach, Tiles* found) {
    const Tile* tile = st3_constant(check, grid->tiles, grid->tile_count, sizeof(Tile), "tiles");
    if (!tile || !REQUIRE(check, grid->tile_count >= 1, "tile_count")) return 0;
    const int32_t lanes = lanes_of(check);
    for (int32_t t = 0; t < grid->tile_count; t++, tile++) {
        const int32_t* variant = tile->kernel < 0 ? 0 : st3_variant(check, kind, tile->kernel);
        if (!REQUIRE(check, variant, "tiles: kernel")) return 0;
        const int32_t rows = variant[0], columns = variant[1], step = variant[2];
        const int64_t column = step ? step * lanes : grid->in_column;
        Tiles own = {
            reach ? rectangle(tile->in, grid->in_row, (rows - 1) * step + reach, lanes, (columns - 1) * step + reach)
                  : rectangle(tile->in, grid->in_row, rows, column, columns),
            rectangle(tile->out, grid->out_row, rows, lanes, columns),
            rectangle(tile->residual, grid->residual_row, rows, lanes, columns),
            rectangle(tile->mask, grid->mask_row, rows, lanes, columns), variant[3], rows * columns};
        if (t == 0) *found = own;
        if (!REQUIRE(check, own.outputs == found->outputs, "tiles: outputs")) return 0;
        found->in = join(found->in, own.in);
        found->out = join(found->out, own.out);
        found->residual = join(found->residual, own.residual);
        found->mask = join(found->mask, own.mask);
        if (own.vectors > found->vectors) found->vectors = own.vectors;
    }
    return 1;
}

int st3_check_results(Check* check, const Epilogue* epilogue, const Tiles* tiles, const Ends* ends, int64_t out_plane,
                      int32_t first, int32_t last) {
    Range out = sum(tiles->out, sum(steps(ends->out_image, ends->images), steps_from(out_plane, first, last)));
    if (!st3_inside_aligned(check, ends->out, out, "out")) return 0;
    if (!REQUIRE(check, is_function(epilogue->function), "function")) return 0;
    if (!is_null(epilogue->residual)) {
        Place place;
        Range range = sum(tiles->residual, sum(steps(epilogue->residual_image, ends->images),
                                               steps_from(epilogue->residual_plane, first, last)));
        if (!st3_arena(check, epilogue->residual, &place, "residual")) return 0;
        if (!st3_inside_aligned(check, place, range, "residual")) return 0;
    }
    if (is_null(epilogue->mask)) return 1;
    Place mask = {0, st3_constant_bytes(check, epilogue->mask)};
    return st3_inside_aligned(check, mask, tiles->mask, "mask");
}

int st3_whole_ends(Check* check, const void* in, const void* out, int64_t in_image, int64_t out_image,
                      int32_t images, Ends* ends) {
    *ends = (Ends){.in_image = in_image, .out_image = out_image, .images = images};
    return REQUIRE(check, images >= 1, "images") && st3_arena(check, in, &ends->in, "in") &&
           st3_arena(check, out, &ends->out, "out");
}

int st3_check_tasks(Check* check, int32_t tasks, int32_t groups, int32_t tiles, int32_t images) {
    return REQUIRE(check, groups >= 1 && tiles >= 1 && (wide)groups * tiles * images == tasks, "tasks");
}

int st3_check_partial(Check* check, const Tiles* tiles, int64_t outputs) {
    wide floats = (wide)outputs * tiles->vectors * lanes_of(check);
    return REQUIRE(check, floats <= check->plan->scratch, "scratch");
}

int st3_check_ascending(Check* check, const int32_t* bounds, int32_t count, const char* field) {
    int passed = REQUIRE(check, bounds[0] >= 0, field);
    for (int32_t i = 0; i < count && passed; i++) passed = REQUIRE(check, bounds[i] <= bounds[i + 1], field);
    return passed;
}

int st3_check_starts(Check* check, const void* reference, int32_t parts, int32_t count) {
    if (!REQUIRE(check, parts >= 1, "parts")) return 0;
    const int32_t* starts = st3_constant(check, reference, (wide)parts + 1, 4, "starts");
    return starts && st3_check_ascending(check, starts, parts, "starts") &&
           REQUIRE(check, starts[parts] <= count, "starts");
}

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

int verify_Depthwise(Check* check, const Depthwise* d, int32_t tasks) {
    Ends ends;
    if (!REQUIRE(check, d->channels >= 1 && d->channels_per_task >= 1, "channels_per_task")) return 0;
    if (!REQUIRE(check, is_int((wide)d->channels + d->channels_per_task), "channels_per_task")) return 0;
    int32_t ranges = (d->channels + d->channels_per_task - 1) / d->channels_per_task;
    return st3_whole_ends(check, d->in, d->out, d->in_image, d->out_image, d->images, &ends) &&
           st3_check_starts(check, d->starts, d->parts, d->tile_count) &&
           st3_check_tasks(check, tasks, ranges, d->parts, d->images) &&
           st3_check_depthwise(check, d, &ends, d->in_plane, 0, d->channels - 1);
}
