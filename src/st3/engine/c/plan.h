// What a plan is made of: the structures that the Python side fills in (engine/plan.py mirrors them field by field).
// Offsets and strides count floats, unless a name says bytes. Every field is aligned to one vector.
#ifndef ST3_PLAN_H
#define ST3_PLAN_H

#include <stdint.h>

#define PUBLIC __attribute__((visibility("default")))

enum { SPARSE, DENSE, HALO, MOVE, TURN, WINDOW, AVERAGE, COMBINE, ROWS, CHAIN, TILEWISE, DEPTHWISE, LANEWISE, KINDS };
enum { PLAIN, GELU, GELU_TANH, SILU, HARDSWISH, HARDSIGMOID, SIGMOID, TANH };

// One non-zero weight and where its input lies, in bytes. A bundle of K outputs stores K places, then K weights.
typedef struct {
    uint32_t place;
    float weight;
} Item;

// A rectangle of vectors of one plane, and the kernel for its size.
typedef struct {
    int32_t in, out, residual, mask, kernel;
} Tile;

// The weights of a range of outputs whose inputs lie in one range of channels.
typedef struct {
    int64_t items;   // its first item
    int64_t bundle;  // its first bundle of rows
    int32_t bundles, first, last, base;  // `base`: the output whose partial sums come first
} Block;

// What follows the sum: residual, clamp, another function, and zeros outside the picture.
typedef struct {
    const float* residual;  // or NULL
    int64_t residual_image, residual_plane, residual_row;
    const int32_t* mask;  // or NULL
    float low, high;
    int32_t function;
} Finish;

typedef struct {
    const float* in;
    float* out;
    const float* bias;
    Finish finish;
    const Item* items;
    const int32_t* outputs;  // of each row of a bundle; -1: no row
    const int32_t* lengths;  // of each bundle
    const Block* blocks;
    const int32_t* groups;  // the blocks of group g: groups[g] .. groups[g + 1]
    const Tile* tiles;
    int64_t in_image, out_image, out_plane;
    int64_t in_row, out_row, mask_row;
    int64_t in_column;  // for the kernels whose column step is not fixed
    int64_t lowest;     // bytes from a tile's first pixel to where places count from
    int32_t group_count, tile_count, images, by_place;
} Sparse;

typedef struct {
    const float* in;
    float* out;
    const float* bias;
    Finish finish;
    const float* weights;  // [group][block][bundle of outputs][tap][output]
    const int64_t* starts;  // where the weights of a group's block begin
    const int32_t* taps;    // bytes from a tile's first pixel
    const int32_t* blocks;  // the taps of block b: blocks[b] .. blocks[b + 1]
    const int32_t* bounds;  // the outputs of group g: bounds[g] .. bounds[g + 1]
    const Tile* tiles;
    int64_t in_image, out_image, out_plane;
    int64_t in_row, out_row, mask_row, in_column;
    int32_t block_count, group_count, tile_count, images, by_place;
} Dense;

// Rows and columns of lanes, beginning at `lane`, and the kernel for their numbers.
typedef struct {
    int32_t lane, kernel, is_last;  // the last one of its vector
} Span;

// A dense convolution whose lanes are outputs.
typedef struct {
    const float* in;
    float* out;
    const float* bias;  // beyond the last output, too, as many as are computed at a time
    Finish finish;
    const float* weights;   // [group][bundle of outputs][tap][output]
    const int64_t* starts;  // where the weights of a group begin; one more at the end
    const int32_t* taps;    // bytes from a tile's first pixel
    const int32_t* bounds;  // the outputs of group g: bounds[g] .. bounds[g + 1]
    const Tile* tiles;      // one vector each; `kernel` is its first span
    const Span* spans;
    int64_t in_image, out_image, out_plane;
    int64_t lane_row;  // lanes from one row of patches to the next
    int32_t tap_count, group_count, tile_count, images;
} Lanewise;

// Each channel by itself, 3x3, every step-th row and column.
typedef struct {
    const float* in;
    float* out;
    const float* bias;
    Finish finish;
    const float* weights;  // nine for each channel
    const Tile* tiles;
    int64_t in_image, in_plane, out_image, out_plane;
    int64_t in_row, out_row, mask_row;
    int64_t first_tap;  // floats from there to a tile's first pixel
    int32_t channels, channels_per_task, tile_count;
} Depthwise;

// Vectors around each lane's patch, copied from the neighbouring lanes.
typedef struct {
    float* field;
    const int32_t* entries;  // destination, source, shuffle
    const int32_t* shuffles; // LANES indices and LANES masks each
    int64_t plane;
    int32_t entry_count;
} Halo;

// Any change of layout: each vector of the destination gathers its lanes from the source.
typedef struct {
    const float* in;
    float* out;
    const int32_t* index;  // LANES per vector; -1: `fill`
    const uint8_t* squares;  // for each vector, whether the lanes of LANES vectors from here are runs; or NULL
    int64_t in_image, in_plane, out_image, out_plane, vectors, last_lanes;
    int64_t index_image, in_part, out_part;
    float fill;
    int32_t in_slot, out_slot, parts, planes, planes_per_task;
} Move;

// Between rows of a matrix and a field whose channels are its columns.
typedef struct {
    const float* in;
    float* out;
    int64_t plane;
    int32_t in_slot, out_slot, rows, columns, width, to_rows;
} Turn;

typedef struct {
    const float* in;
    float* out;
    const int32_t* taps;   // bytes
    const float* scale;    // a vector per vector of the output plane, or NULL: the largest
    const int32_t* mask;
    int64_t in_plane, out_plane, in_row, in_column, out_row;
    int32_t tap_count, height, width;
} Window;

typedef struct {
    const float* in;
    float* out;  // (images, channels)
    int64_t in_image, in_plane, in_row;
    float scale;
    int32_t image_lanes, channels, height, width;
} Average;

// finish(a * scale + shift [+ residual])
typedef struct {
    const float* in;
    float* out;
    const float* scale;
    const float* shift;
    Finish finish;
    int64_t in_image, in_plane, in_row, out_image, out_plane, out_row;
    int32_t channels, height, width;
} Combine;

// Rows of a matrix against few vectors: lanes are outputs, slices of LANES outputs share a length.
typedef struct {
    const float* in;   // (vectors, inputs)
    float* out;        // (vectors, outputs)
    const float* residual;
    const float* bias; // a multiple of LANES
    const float* weights;
    const int32_t* index;    // NULL: the matrix is dense
    const int32_t* order;    // the output of each lane
    const int64_t* starts;   // slices + 1, in vectors
    float low, high;
    int32_t function, vectors, inputs, outputs, slices, slices_per_task, in_slot, out_slot;
} Rows;

// A convolution and a step that takes each channel by itself, a few channels at a time: what lies between them stays
// in the scratch buffer. Where that step needs another layout, a move or a border is made in between.
typedef struct {
    const Sparse* sparse;  // the convolution: one of these three
    const Dense* dense;
    const Lanewise* lanewise;
    const Halo* halo;    // or NULL
    const Move* move;    // or NULL
    const Sparse* next;  // the step that follows: one of these three
    const Depthwise* depthwise;
    const Window* window;
    const int32_t* bounds;  // channels of group g: bounds[g] .. bounds[g + 1]
    int64_t middle, plane, origin;                 // in the scratch buffer: what the convolution writes
    int64_t moved, moved_plane, moved_origin;      // what the next step reads
    int32_t group_count, images;
} Chain;

// Convolutions one after the other on the same tile, which stays in the second cache.
typedef struct {
    const Sparse* first;
    const Sparse* second;
} Tilewise;

typedef struct {
    int32_t kind, tasks;
    const void* arguments;
} Step;

typedef struct {
    float* const* slots;  // tensors of the caller
    float* scratch;       // of this thread
} Place;

typedef void (*Run)(const void* arguments, int32_t task, const Place* place);

typedef struct {
    const char* name;
    int32_t lanes, variant_count;
    const int32_t* variants;  // rows, columns, column step, outputs at a time; 0: sparse, 1: dense, 2: depthwise, 3: lanewise
    Run run[KINDS];
} Kernels;

#endif
