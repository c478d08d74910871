// Checks a plan as a whole: its structures do not overlap, its references lead somewhere, every step passes its check.
#include "verify.h"

#include <stdio.h>
#include <string.h>

#include "library.h"

#define MOST_FLOATS (1ll << 40)  // of memory: more is surely damage
#define MOST_TASKS (1 << 30)     // of a step: threads count a little beyond the last one

typedef int (*Verify)(Check* check, const void* step, int32_t tasks);
#define VERIFY(kind, S) [kind] = (Verify)st3_verify_##S,
static const Verify verify_step[KINDS] = {KINDS_OF(VERIFY)};
#define NAME(kind, S) [kind] = #S,
static const char* const names[KINDS] = {KINDS_OF(NAME)};

// ---------------------------------------------------------------- places

int st3_inside(Check* check, Place place, Range range, int64_t bytes, const char* field) {
    return REQUIRE(check, place.start + range.low >= 0 && place.start + range.high + bytes <= place.size, field) &&
           REQUIRE(check, (((uint64_t)place.start | range.bits) & 3) == 0, field);
}

int st3_inside_aligned(Check* check, Place place, Range range, const char* field) {
    uint64_t mask = vector_bytes(check) - 1;
    return st3_inside(check, place, range, vector_bytes(check), field) &&
           REQUIRE(check, (((uint64_t)place.start | range.bits) & mask) == 0, field);
}

int st3_arena(Check* check, const void* reference, Place* place, const char* field) {
    *place = (Place){number_of(reference), (wide)check->plan->arena * 4};
    return REQUIRE(check, region_of(reference) == ARENA, field);
}

int st3_slot_or_arena(Check* check, int32_t slot, const void* reference, int is_output, Place* place,
                      const char* field) {
    if (slot < 0) return st3_arena(check, reference, place, field);
    const int is_input = slot < check->inputs, is_state = slot >= check->inputs + check->outputs;
    if (!REQUIRE(check, slot < check->plan->slot_count && (is_state || is_input != is_output), field)) return 0;
    *place = (Place){0, (wide)check->plan->slots[slot] * 4};
    return 1;
}

Place st3_scratch(const Check* check, wide floats) { return (Place){floats * 4, (wide)check->plan->scratch * 4}; }

int64_t st3_constant_bytes(const Check* check, const void* reference) {
    return region_of(reference) == CONSTANT ? check->plan->constants[number_of(reference)].bytes : 0;
}

const void* st3_constant(Check* check, const void* reference, wide count, int64_t element_bytes, const char* field) {
    int is_there = region_of(reference) == CONSTANT && count >= 0 &&
                   count * element_bytes <= st3_constant_bytes(check, reference);
    return REQUIRE(check, is_there, field) ? check->plan->constants[number_of(reference)].address : 0;
}

const void* st3_nested(Check* check, const void* reference, int32_t kind, const char* field) {
    const Plan* plan = check->plan;
    int64_t number = number_of(reference);
    int32_t low = 0, high = plan->nested_count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (plan->nested[middle].arguments < number) low = middle + 1;
        else high = middle;
    }
    int is_there = region_of(reference) == STRUCTURE && low < plan->nested_count &&
                   plan->nested[low].arguments == number && plan->nested[low].kind == kind;
    return REQUIRE(check, is_there, field) ? plan->structures + number : 0;
}

const int32_t* st3_variant(const Check* check, int32_t kind, int32_t number) {
    const int32_t* variant = check->kernels->variants;
    for (int32_t i = 0; i < check->kernels->variant_count; i++, variant += 5)
        if (variant[4] == kind && number-- == 0) return variant;
    return 0;
}

// ---------------------------------------------------------------- parts of steps

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

int st3_check_width(Check* check, int32_t height, int32_t width) {
    return REQUIRE(check, height >= 1 && width >= 1 && is_int((wide)width * lanes_of(check)), "width");
}

int st3_check_pixels(Check* check, const void* reference, int32_t height, int32_t width, const char* field) {
    return is_null(reference) || st3_constant(check, reference, (wide)height * width, vector_bytes(check), field);
}

// ---------------------------------------------------------------- the whole plan

static int check_sizes(Check* check, const Plan* plan) {
    int passed = REQUIRE(check, plan->arena >= 0 && plan->arena <= MOST_FLOATS, "arena") &&
                 REQUIRE(check, plan->scratch >= 0 && plan->scratch <= MOST_FLOATS, "scratch") &&
                 REQUIRE(check, plan->parts >= 1, "parts") &&
                 REQUIRE(check, plan->threads >= 1 && plan->threads <= ST3_MOST_THREADS, "threads") &&
                 REQUIRE(check, check->inputs >= 0 && check->outputs >= 0, "slot_count") &&
                 REQUIRE(check, (wide)check->inputs + check->outputs <= plan->slot_count, "slot_count") &&
                 REQUIRE(check, plan->parts == 1 || check->inputs + check->outputs == plan->slot_count, "parts");
    wide floats = 0;
    for (int32_t i = 0; i < plan->slot_count && passed; i++) {
        floats += (wide)plan->slots[i] * plan->parts;
        passed = REQUIRE(check, plan->slots[i] >= 0 && floats <= MOST_FLOATS, "slots");
    }
    for (int32_t i = 0; i < plan->constant_count && passed; i++)
        passed = REQUIRE(check, plan->constants[i].bytes >= 0, "constants") &&
                 REQUIRE(check, (uintptr_t)plan->constants[i].address % 64 == 0, "constants");
    return passed;
}

// Steps and nested structures are in the order of their places, and none overlaps another: binding changes each once.
static int check_places(Check* check, const Plan* plan) {
    int64_t end = 0;
    int32_t i = 0, j = 0;
    while (i < plan->step_count || j < plan->nested_count) {
        int is_step = j == plan->nested_count ||
                      (i < plan->step_count && plan->steps[i].arguments < plan->nested[j].arguments);
        const Step* next = is_step ? plan->steps + i++ : plan->nested + j++;
        if (!REQUIRE(check, next->kind >= 0 && next->kind < KINDS, "kind")) return 0;
        if (!REQUIRE(check, next->arguments >= end && next->arguments % 16 == 0, "arguments")) return 0;
        end = next->arguments + st3_layouts[next->kind].size;
        if (!REQUIRE(check, end <= plan->structure_bytes, "arguments")) return 0;
    }
    return 1;
}

static int check_references(Check* check, const Step* step) {
    const Plan* plan = check->plan;
    for (const int32_t* pointer = st3_layouts[step->kind].pointers; *pointer >= 0; pointer++) {
        const void* reference;
        memcpy(&reference, plan->structures + step->arguments + *pointer, 8);
        int64_t ends[] = {INT64_MAX, 4 * plan->arena + 1, plan->constant_count, plan->structure_bytes};
        uint64_t region = region_of(reference);
        if (!REQUIRE(check, region <= STRUCTURE && number_of(reference) < ends[region], "a reference")) return 0;
    }
    return 1;
}

int32_t st3_verify(const Plan* plan, const Kernels* kernels, int32_t inputs, int32_t outputs, char* error) {
    Check check = {plan, kernels, inputs, outputs, 0};
    int32_t step = 0;
    char where[64] = "the plan";
    int passed = check_sizes(&check, plan) && check_places(&check, plan);
    for (int32_t i = 0; i < plan->nested_count && passed; i++) passed = check_references(&check, plan->nested + i);
    for (; step < plan->step_count && passed; step++) {
        const Step* each = plan->steps + step;
        passed = REQUIRE(&check, each->tasks >= 1 && each->tasks <= MOST_TASKS, "tasks") &&
                 check_references(&check, each) &&
                 verify_step[each->kind](&check, plan->structures + each->arguments, each->tasks);
        if (!passed) snprintf(where, sizeof where, "step %d (%s)", step, names[each->kind]);
    }
    if (!passed && error)
        snprintf(error, ST3_ERROR, "%s for %s has a wrong value: %s", where, kernels->name, check.fault);
    return passed ? 0 : -1;
}
