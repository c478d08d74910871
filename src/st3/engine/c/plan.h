// The structures of a plan. Python fills them in; engine/plan.py mirrors them field by field.
// Offsets and strides count floats, unless a name says bytes. Every plane is aligned to one vector.
#ifndef ST3_PLAN_H
#define ST3_PLAN_H

#include <stdint.h>

#define PUBLIC __attribute__((visibility("default")))

enum {
    SPARSE, DENSE, BORDER, MOVE, TRANSPOSE, WINDOW, AVERAGE, COMBINE, ROWS, CHAIN, TILEWISE, DEPTHWISE, LANEWISE,
    PAIR, NORM, GROUP_NORM, ROWWISE, KINDS
};
enum { PLAIN, GELU, GELU_TANH, SILU, HARDSWISH, HARDSIGMOID, SIGMOID, TANH, LEAKY_RELU, ELU };

// One non-zero weight and the byte offset of its input. A bundle of K outputs stores K offsets, then K weights.
typedef struct {
    uint32_t offset;
    float weight;
} Item;

// A rectangle of vectors in a plane, and the kernel for its size.
typedef struct {
    int32_t in, out, residual, mask, kernel;
} Tile;

// The weights of one group of outputs for one range of input channels.
typedef struct {
    int64_t items;   // index of its first item
    int64_t bundle;  // index of its first bundle
    int32_t bundles, first, last, base;  // `base`: the output whose partial sums are stored first
} Block;

// What follows the sum: add the residual, clamp, apply another activation, zero the pixels outside the image.
typedef struct {
    const float* residual;  // or NULL
    int64_t residual_image, residual_plane, residual_row;
    const int32_t* mask;  // or NULL
    float low, high;
    int64_t function;  // its number, and the bits of its parameter in the upper half
} Epilogue;

typedef struct {
    const float* in;
    float* out;
    const float* bias;
    Epilogue epilogue;
    const Item* items;
    const int32_t* outputs;  // the outputs of each bundle; -1: none
    const int32_t* lengths;  // items per output of each bundle
    const Block* blocks;
    const int32_t* groups;  // the blocks of group g: groups[g] .. groups[g + 1]
    const Tile* tiles;
    int64_t in_image, out_image, out_plane;
    int64_t in_row, out_row, mask_row;
    int64_t in_column;      // for kernels without a fixed column step
    int64_t lowest_offset;  // bytes; item offsets are relative to a tile's first pixel plus this
    int32_t group_count, tile_count, images, tile_major;
} Sparse;

typedef struct {
    const float* in;
    float* out;
    const float* bias;
    Epilogue epilogue;
    const float* weights;  // [group][block][bundle of outputs][tap][output]
    const int64_t* starts;  // of the weights of each block of each group
    const int32_t* taps;    // bytes from a tile's first pixel
    const int32_t* blocks;  // the taps of block b: blocks[b] .. blocks[b + 1]
    const int32_t* bounds;  // the outputs of group g: bounds[g] .. bounds[g + 1]
    const Tile* tiles;
    int64_t in_image, out_image, out_plane;
    int64_t in_row, out_row, mask_row, in_column;
    int32_t block_count, group_count, tile_count, images, tile_major;
} Dense;

// A rectangle of lanes that starts at `lane`, and the kernel for its size.
typedef struct {
    int32_t lane, kernel, is_last;  // is_last: in its vector
} Span;

// A dense convolution vectorised over outputs.
typedef struct {
    const float* in;
    float* out;
    const float* bias;  // padded by one bundle of outputs
    Epilogue epilogue;
    const float* weights;   // [group][bundle of outputs][tap][output]
    const int64_t* starts;  // of the weights of each group, and their end
    const int32_t* taps;    // bytes from a tile's first pixel
    const int32_t* bounds;  // the outputs of group g: bounds[g] .. bounds[g + 1]
    const Tile* tiles;      // one vector each; `kernel` is the index of its first span
    const Span* spans;
    int64_t in_image, out_image, out_plane;
    int64_t lane_row;  // lanes from one row of patches to the next
    int32_t tap_count, group_count, tile_count, images;
} Lanewise;

// A 3x3 depthwise convolution.
typedef struct {
    const float* in;
    float* out;
    const float* bias;
    Epilogue epilogue;
    const float* weights;  // nine per channel
    const Tile* tiles;
    int64_t in_image, in_plane, out_image, out_plane;
    int64_t in_row, out_row, mask_row;
    int64_t first_tap;  // floats from the first tap to a tile's first pixel
    int32_t channels, channels_per_task, tile_count;
} Depthwise;

// Fills the border around each lane's patch with copies from neighbouring lanes.
typedef struct {
    float* field;
    const int32_t* entries;  // destination, source, shuffle
    const int32_t* shuffles; // LANES indices and LANES masks each
    int64_t plane;
    int32_t entry_count;
} Border;

// A change of layout: each destination vector gathers its lanes from the source.
typedef struct {
    const float* in;
    float* out;
    const int32_t* index;  // LANES per vector; -1: `fill`
    const uint8_t* squares;  // per vector: whether a square (see moves.h) starts here; or NULL
    int64_t in_image, in_plane, out_image, out_plane, vectors, last_lanes;
    int64_t index_image, in_part, out_part;
    float fill;
    int32_t in_slot, out_slot, parts, planes, planes_per_task;
} Move;

// Converts between the rows of a matrix and a field whose channels are the matrix columns.
typedef struct {
    const float* in;
    float* out;
    int64_t plane;
    int32_t in_slot, out_slot, rows, columns, width, to_rows;
} Transpose;

// Pooling.
typedef struct {
    const float* in;
    float* out;
    const int32_t* taps;   // bytes
    const float* scale;    // average pooling: one factor per output pixel; NULL: max pooling
    const int32_t* mask;
    int64_t in_plane, out_plane, in_row, in_column, out_row;
    int32_t tap_count, height, width;
} Window;

// Global average pooling.
typedef struct {
    const float* in;
    float* out;  // (images, channels)
    int64_t in_image, in_plane, in_row;
    float scale;
    int32_t image_lanes, channels, height, width;
} Average;

// An elementwise step: epilogue(in * scale + shift).
typedef struct {
    const float* in;
    float* out;
    const float* scale;
    const float* shift;
    Epilogue epilogue;
    int64_t in_image, in_plane, in_row, out_image, out_plane, out_row;
    int32_t channels, height, width;
} Combine;

// A matrix times a few vectors, vectorised over outputs. A slice is LANES outputs padded to the same length.
typedef struct {
    const float* in;   // (vectors, inputs)
    float* out;        // (vectors, outputs)
    const float* residual;
    const float* bias; // padded to a multiple of LANES
    const float* weights;
    const int32_t* index;    // the input of each weight; NULL: the matrix is dense
    const int32_t* order;    // the output of each lane; -1: none
    const int64_t* starts;   // slices + 1, in vectors
    float low, high;
    int64_t function;
    int32_t vectors, inputs, outputs, slices, slices_per_task, in_slot, out_slot;
} Rows;

// A convolution and a channel-wise step (depthwise convolution or pooling), a few channels at a time. The intermediate
// result stays in the scratch buffer; a move or a border fill in between brings it into the layout of the second step.
typedef struct {
    const Sparse* sparse;  // the convolution: one of these three is set
    const Dense* dense;
    const Lanewise* lanewise;
    const Border* border;  // or NULL
    const Move* move;      // or NULL
    const Sparse* next;    // the second step: one of these three is set
    const Depthwise* depthwise;
    const Window* window;
    const int32_t* bounds;  // channels of group g: bounds[g] .. bounds[g + 1]
    int64_t middle, plane, origin;             // what the convolution writes, in the scratch buffer
    int64_t moved, moved_plane, moved_origin;  // what the second step reads
    int32_t group_count, images;
} Chain;

// Two 1x1 convolutions, one tile at a time: the second reads the tile from the L2 cache.
typedef struct {
    const Sparse* first;
    const Sparse* second;
} Tilewise;

// The sum or product of two values: epilogue(in + other) or epilogue(in * other). `other` is a field, perhaps with one
// plane for all channels; or, if image_lanes is not 0, one number per image and channel.
typedef struct {
    const float* in;
    float* out;
    const float* other;
    Epilogue epilogue;
    int64_t in_image, in_plane, in_row, out_image, out_plane, out_row, other_image, other_plane, other_row;
    int32_t other_slot, image_lanes, is_product, channels, height, width;
} Pair;

// Layer norm (centred) or RMS norm over the channels of each pixel.
typedef struct {
    const float* in;
    float* out;
    const float* scale;  // or NULL
    const float* shift;  // or NULL
    const int32_t* mask;
    int64_t in_image, in_plane, in_row, out_image, out_plane, out_row;
    float eps;
    int32_t is_centred, channels, height, width;
} Norm;

// Group norm over the pixels and `channels` channels of each group.
typedef struct {
    const float* in;
    float* out;
    const float* scale;  // or NULL
    const float* shift;  // or NULL
    const int32_t* mask;
    int64_t in_image, in_plane, in_row, out_image, out_plane, out_row;
    float eps, part;  // part: 1 / (numbers in a group)
    int32_t channels, height, width, groups, image_lanes;
} GroupNorm;

// Rows in contiguous order: activation(norm(in) * scale + shift), then the sum or product with `other`.
typedef struct {
    const float* in;
    float* out;
    const float* other;  // or NULL
    const float* scale;  // or NULL
    const float* shift;  // or NULL
    int64_t in_row, other_row, function;  // other_row: 1 if `other` has one number per row
    float eps, low, high;
    int32_t in_slot, out_slot, other_slot, is_norm, is_centred, is_product, columns;
} Rowwise;

typedef struct {
    int32_t kind, tasks;
    const void* arguments;
} Step;

typedef struct {
    float* const* slots;  // the caller's tensors
    float* scratch;       // this thread's buffer
} Context;

typedef void (*Run)(const void* arguments, int32_t task, const Context* context);

typedef struct {
    const char* name;
    int32_t lanes, variant_count;
    // Five numbers each: rows, columns, column step, outputs per bundle, kind (sparse 0, dense 1, depthwise 2, lanewise 3)
    const int32_t* variants;
    Run run[KINDS];
} Kernels;

#endif
