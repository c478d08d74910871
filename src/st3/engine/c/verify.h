// Checks of a plan that comes from a file: whatever its steps touch lies inside the memory that they may touch.
//
// Every kind of step has one function that states what its kernel reads and writes (verify_*.c). An access is a `Range`
// of offsets, relative to a `Place`. Sums are exact: 128 bits hold them all.
#ifndef ST3_VERIFY_H
#define ST3_VERIFY_H

#include "plan.h"

typedef __int128 wide;

typedef struct {
    const Plan* plan;
    const Kernels* kernels;
    int32_t inputs;     // the first slots: the caller's inputs, which are never written
    int32_t outputs;    // the next ones, which are never read; the rest is state, which stays between calls
    const char* fault;  // the field that was refused
} Check;

// The offsets of the lowest and the highest access, in bytes; bits: all offsets and strides or'ed, for the alignment.
typedef struct {
    wide low, high;
    uint64_t bits;
} Range;

// Memory of `size` bytes, and where in it offsets start.
typedef struct {
    wide start, size;
} Place;

// What the tiles of a convolution touch, for one image and one output.
typedef struct {
    Range in, out, residual, mask;
    int32_t outputs, vectors;  // per bundle; of the largest tile
} Tiles;

// The fields by which tiles become offsets.
typedef struct {
    const Tile* tiles;
    int32_t tile_count;
    int64_t in_row, in_column, out_row, residual_row, mask_row;
} Grid;

// Where a convolution reads and writes.
typedef struct {
    Place in, out;
    int64_t in_image, out_image;
    int32_t images;
} Ends;

// A convolution while its groups are checked, one after another.
typedef struct {
    Tiles tiles;
    int64_t items, bundles;  // of the groups so far
} Cursor;

// Returns 0, or -1 and a sentence in `error` (ST3_ERROR bytes, or NULL).
PUBLIC int32_t st3_verify(const Plan* plan, const Kernels* kernels, int32_t inputs, int32_t outputs, char* error);

// All of these return whether the check passed.
#define REQUIRE(check, condition, field) ((condition) || ((check)->fault = (field), 0))

static inline uint64_t region_of(const void* reference) { return (uint64_t)reference >> REGION_SHIFT; }
static inline int64_t number_of(const void* reference) { return (uint64_t)reference & ((1ull << REGION_SHIFT) - 1); }
static inline int is_null(const void* reference) { return region_of(reference) == 0; }
static inline int32_t lanes_of(const Check* check) { return check->kernels->lanes; }
static inline int64_t vector_bytes(const Check* check) { return 4 * (int64_t)lanes_of(check); }

// ---------------------------------------------------------------- ranges

static inline Range at(wide offset) { return (Range){offset, offset, (uint64_t)offset}; }
static inline Range sum(Range a, Range b) { return (Range){a.low + b.low, a.high + b.high, a.bits | b.bits}; }
static inline Range join(Range a, Range b) {
    return (Range){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high, a.bits | b.bits};
}
// The range of i * stride for 0 <= i < count; strides of floats are given in floats.
static inline Range steps(int64_t floats, int64_t count) {
    wide reach = (wide)floats * 4 * (count - 1);
    return (Range){reach < 0 ? reach : 0, reach > 0 ? reach : 0, count > 1 ? (uint64_t)floats * 4 : 0};
}
// The range of i * stride for first <= i <= last.
static inline Range steps_from(int64_t floats, int64_t first, int64_t last) {
    return sum(at((wide)floats * 4 * first), steps(floats, last - first + 1));
}

// A rectangle of a plane; `start` counts floats.
static inline Range rectangle(int32_t start, int64_t row, int32_t rows, int64_t column, int32_t columns) {
    return sum(at((wide)start * 4), sum(steps(row, rows), steps(column, columns)));
}

// ---------------------------------------------------------------- places

int st3_inside(Check* check, Place place, Range range, int64_t bytes, const char* field);  // `bytes` at each offset
int st3_inside_aligned(Check* check, Place place, Range range, const char* field);        // a vector at each offset
int st3_arena(Check* check, const void* reference, Place* place, const char* field);
int st3_slot_or_arena(Check* check, int32_t slot, const void* reference, int is_output, Place* place,
                      const char* field);
Place st3_scratch(const Check* check, wide floats);

// A constant of at least `count` elements, or NULL.
const void* st3_constant(Check* check, const void* reference, wide count, int64_t element_bytes, const char* field);
int64_t st3_constant_bytes(const Check* check, const void* reference);
// The structure of another one, or NULL.
const void* st3_nested(Check* check, const void* reference, int32_t kind, const char* field);
// The tile size number `number` of a kind: five numbers, or NULL.
const int32_t* st3_variant(const Check* check, int32_t kind, int32_t number);

// The low half of an activation is its number.
static inline int is_function(int64_t function) {
    return (int32_t)function >= 0 && (int32_t)function < FUNCTION_COUNT;
}
// Whether int32_t holds it: kernels multiply these.
static inline int is_int(wide number) { return number >= 0 && number <= INT32_MAX - 1024; }

// ---------------------------------------------------------------- parts of steps

// `reach`: the inputs of a window in each direction, if the kernel reads windows itself.
int st3_check_tiles(Check* check, int32_t kind, const Grid* grid, int32_t reach, Tiles* found);
// Both ends in the arena, for all images.
int st3_whole_ends(Check* check, const void* in, const void* out, int64_t in_image, int64_t out_image, int32_t images,
                   Ends* ends);
int st3_check_tasks(Check* check, int32_t tasks, int32_t groups, int32_t tiles, int32_t images);
// Partial sums of `outputs` outputs, kept in the scratch buffer between blocks.
int st3_check_partial(Check* check, const Tiles* tiles, int64_t outputs);
// Ascending indices bounds[0 .. count], the first not negative.
int st3_check_ascending(Check* check, const int32_t* bounds, int32_t count, const char* field);
// The parts of a plane: starts[0 .. parts], none beyond `count`.
int st3_check_starts(Check* check, const void* reference, int32_t parts, int32_t count);
// An array of one vector per pixel, or NULL.
int st3_check_pixels(Check* check, const void* reference, int32_t height, int32_t width, const char* field);
int st3_check_width(Check* check, int32_t height, int32_t width);
// What follows the sums of the outputs first .. last.
int st3_check_results(Check* check, const Epilogue* epilogue, const Tiles* tiles, const Ends* ends, int64_t out_plane,
                      int32_t first, int32_t last);
int st3_begin_sparse(Check* check, const Sparse* s, Cursor* cursor);
int st3_check_sparse(Check* check, const Sparse* s, Cursor* cursor, int32_t group, const Ends* ends);
int st3_begin_dense(Check* check, const Dense* d, Cursor* cursor);
int st3_check_dense(Check* check, const Dense* d, Cursor* cursor, int32_t group, const Ends* ends);
int st3_begin_lanewise(Check* check, const Lanewise* a, Cursor* cursor);
int st3_check_lanewise(Check* check, const Lanewise* a, Cursor* cursor, int32_t group, const Ends* ends);
int st3_check_depthwise(Check* check, const Depthwise* d, const Ends* ends, int64_t in_plane, int32_t first,
                        int32_t last);
int st3_check_border(Check* check, const Border* b, Place field, Range planes);
int st3_check_move(Check* check, const Move* m, Place in, Place out, Range in_planes, Range out_planes);
int st3_check_window(Check* check, const Window* w, Place in, Place out, Range in_planes, Range out_planes);

// One function per kind: st3_verify_Sparse, ... A kind without one does not link.
#define HIDDEN __attribute__((visibility("hidden")))
#define DECLARE_VERIFY(kind, S) HIDDEN int st3_verify_##S(Check* check, const S* step, int32_t tasks);
KINDS_OF(DECLARE_VERIFY)

#endif
