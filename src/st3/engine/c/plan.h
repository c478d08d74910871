// The structures of a plan, each stated once as a list of fields: the list makes the C structure, the text by which
// Python makes the same structure (st3_schema), and the table of pointers that `bind` turns into addresses.
//
//     P(type, name)  a pointer        L(name)  int64_t     I(name)  int32_t     U(name)  uint32_t     F(name)  float
//     N(type, name)  a structure
//
// A plan holds no addresses: it can be written to a file, and any number of sessions can share it. Where a bound
// structure has a pointer, the plan has a reference: a region in the upper four bits and a number below. Reference 0 is
// NULL. Offsets and strides count floats, unless a name says bytes. Every plane is aligned to one vector.
#ifndef ST3_PLAN_H
#define ST3_PLAN_H

#include <stdatomic.h>
#include <stdint.h>

#define PUBLIC __attribute__((visibility("default")))

// The regions of references: bytes from the start of a session's arena, the number of a constant, bytes from the start
// of the plan's structures.
#define ARENA 1
#define CONSTANT 2
#define STRUCTURE 3
#define REGION_SHIFT 60
#define LANEWISE_PREFETCH 8  // taps beyond the last one that the lanewise kernel reads
#define NORM_VECTORS 4  // adjacent vectors that a norm computes at a time, so that whole runs of cache lines are read
#define ROWS_TOGETHER 4  // rows for which attention loads each vector of keys or values once
#define BAD_NUMBER 1  // the fault of a call whose inputs hold a number that names no row of a table
#define NUMBERS(X) \
    X(ARENA) X(CONSTANT) X(STRUCTURE) X(REGION_SHIFT) X(LANEWISE_PREFETCH) X(NORM_VECTORS) X(ROWS_TOGETHER) \
    X(BAD_NUMBER)

// Activations that are not a clamp, in the order of their numbers.
#define FUNCTIONS(A) \
    A(PLAIN, none) A(GELU, gelu) A(GELU_TANH, gelu_tanh) A(SILU, silu) A(HARDSWISH, hardswish) \
    A(HARDSIGMOID, hardsigmoid) A(SIGMOID, sigmoid) A(TANH, tanh) A(LEAKY_RELU, leaky_relu) A(ELU, elu)

// The kinds of steps, and the structure that each is called with.
#define KINDS_OF(K) \
    K(SPARSE, Sparse) K(DENSE, Dense) K(BORDER, Border) K(MOVE, Move) K(TRANSPOSE, Transpose) K(WINDOW, Window) \
    K(AVERAGE, Average) K(COMBINE, Combine) K(ROWS, Rows) K(CHAIN, Chain) K(TILEWISE, Tilewise) \
    K(DEPTHWISE, Depthwise) K(LANEWISE, Lanewise) K(PAIR, Pair) K(NORM, Norm) K(GROUP_NORM, GroupNorm) \
    K(ROWWISE, Rowwise) K(ATTENTION, Attention) K(NUMBERED, Numbered) K(RESAMPLE, Resample) \
    K(QUANTISED, Quantised) K(CONVERT, Convert)

#define AS_ENUM(name, ...) name,
enum { FUNCTIONS(AS_ENUM) FUNCTION_COUNT };
enum { KINDS_OF(AS_ENUM) KINDS };

// One non-zero weight and the byte offset of its input. A bundle of K outputs stores K offsets, then K weights.
#define FIELDS_Item(S, P, L, I, U, F, N) U(S, offset) F(S, weight)

// A rectangle of vectors in a plane, and the kernel for its size.
#define FIELDS_Tile(S, P, L, I, U, F, N) I(S, in) I(S, out) I(S, residual) I(S, mask) I(S, kernel)

// The weights of one group of outputs for one range of input channels: from item `items` and bundle `bundle` on.
// `base`: the output whose partial sums are stored first.
#define FIELDS_Block(S, P, L, I, U, F, N) \
    L(S, items) L(S, bundle) I(S, bundles) I(S, first) I(S, last) I(S, base)

// A rectangle of lanes that starts at `lane`, and the kernel for its size; is_last: in its vector.
#define FIELDS_Span(S, P, L, I, U, F, N) I(S, lane) I(S, kernel) I(S, is_last)

// What follows the sum: add the residual (or NULL), clamp, apply another activation, zero the pixels outside the image
// (mask, or NULL). The low half of `function` is its number, the high half the bits of its parameter.
#define FIELDS_Epilogue(S, P, L, I, U, F, N) \
    P(S, const float, residual) L(S, residual_image) L(S, residual_plane) L(S, residual_row) \
    P(S, const int32_t, mask) F(S, low) F(S, high) L(S, function)

// A convolution by lists of non-zero weights.
//   outputs     the outputs of each bundle; -1: none
//   lengths     items per output of each bundle
//   groups      the blocks of group g: groups[g] .. groups[g + 1]
//   in_column   for kernels without a fixed column step
//   lowest_offset  bytes; item offsets are relative to a tile's first pixel plus this
#define FIELDS_Sparse(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, bias) N(S, Epilogue, epilogue) \
    P(S, const Item, items) P(S, const int32_t, outputs) P(S, const int32_t, lengths) P(S, const Block, blocks) \
    P(S, const int32_t, groups) P(S, const Tile, tiles) \
    L(S, in_image) L(S, out_image) L(S, out_plane) L(S, in_row) L(S, out_row) L(S, mask_row) L(S, in_column) \
    L(S, lowest_offset) I(S, group_count) I(S, tile_count) I(S, images) I(S, tile_major)

// A convolution by all weights.
//   weights     [group][block][bundle of outputs][tap][output]
//   starts      of the weights of each block of each group
//   taps        bytes from a tile's first pixel
//   blocks      the taps of block b: blocks[b] .. blocks[b + 1]
//   bounds      the outputs of group g: bounds[g] .. bounds[g + 1]
#define FIELDS_Dense(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, bias) N(S, Epilogue, epilogue) \
    P(S, const float, weights) P(S, const int64_t, starts) P(S, const int32_t, taps) P(S, const int32_t, blocks) \
    P(S, const int32_t, bounds) P(S, const Tile, tiles) \
    L(S, in_image) L(S, out_image) L(S, out_plane) L(S, in_row) L(S, out_row) L(S, mask_row) L(S, in_column) \
    I(S, block_count) I(S, group_count) I(S, tile_count) I(S, images) I(S, tile_major)

// A dense convolution vectorised over outputs.
//   bias        padded by one bundle of outputs
//   weights     [group][bundle of outputs][tap][output]
//   starts      of the weights of each group, and their end
//   tiles       one vector each; `kernel` is the index of its first span
//   lane_row    lanes from one row of patches to the next
#define FIELDS_Lanewise(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, bias) N(S, Epilogue, epilogue) \
    P(S, const float, weights) P(S, const int64_t, starts) P(S, const int32_t, taps) P(S, const int32_t, bounds) \
    P(S, const Tile, tiles) P(S, const Span, spans) \
    L(S, in_image) L(S, out_image) L(S, out_plane) L(S, lane_row) \
    I(S, tap_count) I(S, group_count) I(S, tile_count) I(S, images)

// A 3x3 depthwise convolution; nine weights per channel.
//   first_tap   floats from the first tap to a tile's first pixel
//   starts      the tiles of part p of a plane, a few of its rows: starts[p] .. starts[p + 1]
#define FIELDS_Depthwise(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, bias) N(S, Epilogue, epilogue) \
    P(S, const float, weights) P(S, const Tile, tiles) \
    L(S, in_image) L(S, in_plane) L(S, out_image) L(S, out_plane) L(S, in_row) L(S, out_row) L(S, mask_row) \
    L(S, first_tap) P(S, const int32_t, starts) I(S, channels) I(S, channels_per_task) I(S, tile_count) I(S, images) \
    I(S, parts)

// Fills the border around each lane's patch with copies from neighbouring lanes.
//   entries     destination, source, shuffle
//   shuffles    LANES indices and LANES masks each
//   starts      the entries of part p of a plane, a few of its rows: starts[p] .. starts[p + 1]
//   outside     the bits of pixels outside the image
#define FIELDS_Border(S, P, L, I, U, F, N) \
    P(S, float, field) P(S, const int32_t, entries) P(S, const int32_t, shuffles) P(S, const int32_t, starts) \
    L(S, plane) I(S, entry_count) I(S, shuffle_count) I(S, planes) I(S, parts) U(S, outside)

// A change of layout: each destination vector gathers its lanes from the source.
//   index       LANES per vector; -1: `fill`
//   squares     per vector: whether a square (see moves.h) starts here; or NULL
#define FIELDS_Move(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const int32_t, index) P(S, const uint8_t, squares) \
    L(S, in_image) L(S, in_plane) L(S, out_image) L(S, out_plane) L(S, vectors) L(S, last_lanes) L(S, index_image) \
    L(S, in_part) L(S, out_part) F(S, fill) I(S, in_slot) I(S, out_slot) I(S, parts) I(S, planes) I(S, planes_per_task)

// Weighted sums of a few pixels of the same plane: interpolation.
//   index, weights   [vector][tap][lane]; index -1: nothing
#define FIELDS_Resample(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const int32_t, index) P(S, const float, weights) \
    L(S, in_image) L(S, in_plane) L(S, out_image) L(S, out_plane) \
    I(S, vectors) I(S, taps) I(S, planes) I(S, planes_per_task)

// Converts between the rows of a matrix and a field whose channels are the matrix columns.
#define FIELDS_Transpose(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) L(S, plane) \
    I(S, in_slot) I(S, out_slot) I(S, rows) I(S, columns) I(S, width) I(S, to_rows)

// Pooling, a few rows of a plane at a time. taps: bytes. scale: one factor per output pixel for average pooling; NULL:
// max pooling, of each byte if has_bytes.
#define FIELDS_Window(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const int32_t, taps) P(S, const float, scale) P(S, const int32_t, mask) \
    L(S, in_plane) L(S, out_plane) L(S, in_row) L(S, in_column) L(S, out_row) I(S, tap_count) I(S, height) I(S, width) \
    I(S, planes) I(S, parts) I(S, has_bytes)

// Global average pooling to (images, channels).
#define FIELDS_Average(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) L(S, in_image) L(S, in_plane) L(S, in_row) F(S, scale) \
    I(S, image_lanes) I(S, channels) I(S, height) I(S, width)

// An elementwise step: epilogue(in * scale + shift).
#define FIELDS_Combine(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, scale) P(S, const float, shift) N(S, Epilogue, epilogue) \
    L(S, in_image) L(S, in_plane) L(S, in_row) L(S, out_image) L(S, out_plane) L(S, out_row) \
    I(S, channels) I(S, height) I(S, width)

// A matrix times a few vectors, vectorised over outputs. A slice is LANES outputs padded to the same length.
//   in, out     (vectors, inputs), (vectors, outputs)
//   bias        padded to a multiple of LANES
//   index       the input of each weight; NULL: the matrix is dense
//   order       the output of each lane; -1: none
//   starts      slices + 1, in vectors
#define FIELDS_Rows(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, residual) P(S, const float, bias) \
    P(S, const float, weights) P(S, const int32_t, index) P(S, const int32_t, order) P(S, const int64_t, starts) \
    F(S, low) F(S, high) L(S, function) I(S, vectors) I(S, inputs) I(S, outputs) I(S, slices) I(S, slices_per_task) \
    I(S, in_slot) I(S, out_slot) I(S, residual_slot)

// A convolution and a channel-wise step (depthwise convolution or pooling), a few channels at a time. The intermediate
// result stays in the scratch buffer; a move or a border fill in between brings it into the layout of the second step.
//   sparse, dense, lanewise    the convolution: one of these three is set
//   border, move               or NULL
//   next, depthwise, window    the second step: one of these three is set
//   bounds                     channels of group g: bounds[g] .. bounds[g + 1]
//   middle, plane, origin      what the convolution writes, in the scratch buffer
//   moved ...                  what the second step reads
#define FIELDS_Chain(S, P, L, I, U, F, N) \
    P(S, const Sparse, sparse) P(S, const Dense, dense) P(S, const Lanewise, lanewise) P(S, const Border, border) \
    P(S, const Move, move) P(S, const Sparse, next) P(S, const Depthwise, depthwise) P(S, const Window, window) \
    P(S, const int32_t, bounds) L(S, middle) L(S, plane) L(S, origin) L(S, moved) L(S, moved_plane) L(S, moved_origin) \
    I(S, group_count) I(S, images)

// Two 1x1 convolutions, one tile at a time: the second reads the tile from the L2 cache.
#define FIELDS_Tilewise(S, P, L, I, U, F, N) P(S, const Sparse, first) P(S, const Sparse, second)

// A convolution of bytes. A float of its fields is a word, the bytes of four adjacent channels of one pixel; a weight of
// its lists is a word too, the signed bytes by which those of the input are multiplied. The result of an output is
//     y = sum * scale + lists->bias + byte of the residual * residual_scale
// or, with another activation than a clamp, activation(y) * out_scale + out_zero. It is rounded, and cut to 0 .. 255. With
// to_floats, the result is epilogue(sum * scale + lists->bias) as floats, and so is the residual.
//   lists       tiles have kernels of this kind; for bytes, its clamp is not used: they have no room for more
//   bounds      the outputs of group g: bounds[g] .. bounds[g + 1]; multiples of four
//   outside     the word of pixels outside the image
#define FIELDS_Quantised(S, P, L, I, U, F, N) \
    P(S, const Sparse, lists) P(S, const float, scale) P(S, const int32_t, bounds) \
    F(S, residual_scale) F(S, out_scale) F(S, out_zero) U(S, outside) I(S, to_floats)

// Numbers as bytes, in * scale + zero, rounded and cut to 0 .. 255; or with is_back (in - zero) * scale.
//   planes      of words; the last one may have fewer channels than four
#define FIELDS_Convert(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const int32_t, mask) \
    L(S, in_image) L(S, in_plane) L(S, in_row) L(S, out_image) L(S, out_plane) L(S, out_row) \
    F(S, scale) F(S, zero) U(S, outside) I(S, channels) I(S, planes) I(S, height) I(S, width) I(S, is_back)

// The sum or product of two values: epilogue(in + other) or epilogue(in * other). `other` is a field, perhaps with one
// plane for all channels; or, if image_lanes is not 0, one number per image and channel.
#define FIELDS_Pair(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, other) N(S, Epilogue, epilogue) \
    L(S, in_image) L(S, in_plane) L(S, in_row) L(S, out_image) L(S, out_plane) L(S, out_row) \
    L(S, other_image) L(S, other_plane) L(S, other_row) \
    I(S, other_slot) I(S, image_lanes) I(S, is_product) I(S, channels) I(S, height) I(S, width)

// Layer norm (centred) or RMS norm over the channels of each pixel; scale, shift and mask, or NULL.
#define FIELDS_Norm(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, scale) P(S, const float, shift) P(S, const int32_t, mask) \
    L(S, in_image) L(S, in_plane) L(S, in_row) L(S, out_image) L(S, out_plane) L(S, out_row) \
    F(S, eps) I(S, is_centred) I(S, channels) I(S, height) I(S, width)

// Group norm over the pixels and `channels` channels of each group. part: 1 / (numbers in a group).
#define FIELDS_GroupNorm(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, scale) P(S, const float, shift) P(S, const int32_t, mask) \
    L(S, in_image) L(S, in_plane) L(S, in_row) L(S, out_image) L(S, out_plane) L(S, out_row) \
    F(S, eps) F(S, part) I(S, channels) I(S, height) I(S, width) I(S, groups) I(S, image_lanes)

// Rows in contiguous order: norm(in) * scale + shift, then the sum or product with `other`, then the activation.
//   other, scale, shift   or NULL
//   other_row             1 if `other` has one number per row
#define FIELDS_Rowwise(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, other) P(S, const float, scale) P(S, const float, shift) \
    L(S, in_row) L(S, other_row) L(S, function) F(S, eps) F(S, low) F(S, high) \
    I(S, in_slot) I(S, out_slot) I(S, other_slot) I(S, is_norm) I(S, is_centred) I(S, is_product) I(S, columns)

// Attention: the values of all places, weighted by the softmax of scale * (query . key) + mask, for every row of every
// head of every image. Columns are adjacent; out is (images, rows, heads, value_width).
//   heads_per_key   adjacent heads that share keys and values
//   rows_per_task   if more than 1, a task transposes the keys and computes ROWS_TOGETHER rows at a time
//   mask            added to the scores, or NULL
//   until           int64 numbers: the last place that each row sees; NULL: all, or with is_causal those up to its own
#define FIELDS_Attention(S, P, L, I, U, F, N) \
    P(S, const float, query) P(S, const float, keys) P(S, const float, values) P(S, const float, mask) \
    P(S, const float, until) P(S, float, out) \
    L(S, query_image) L(S, query_head) L(S, query_row) L(S, keys_image) L(S, keys_head) L(S, keys_row) \
    L(S, values_image) L(S, values_head) L(S, values_row) L(S, mask_image) L(S, mask_head) L(S, mask_row) \
    L(S, until_image) L(S, until_row) F(S, scale) I(S, images) I(S, heads) I(S, heads_per_key) I(S, rows) I(S, rows_per_task) \
    I(S, length) I(S, width) I(S, value_width) I(S, is_causal) \
    I(S, query_slot) I(S, keys_slot) I(S, values_slot) I(S, mask_slot) I(S, until_slot) I(S, out_slot)

// Rows copied by number: out[i] = in[numbers[i]], or with is_target out[numbers[i]] = in[i], in each of several parts.
//   numbers     int64, each below `limit`
//   wraps       negative numbers count from the end
#define FIELDS_Numbered(S, P, L, I, U, F, N) \
    P(S, const float, in) P(S, float, out) P(S, const float, numbers) \
    L(S, in_part) L(S, in_row) L(S, out_part) L(S, out_row) L(S, limit) \
    I(S, parts) I(S, rows) I(S, width) I(S, is_target) I(S, wraps) I(S, in_slot) I(S, out_slot) I(S, numbers_slot)

// A step of a plan: its kind, its number of tasks, and where its structure starts, in bytes.
#define FIELDS_Step(S, P, L, I, U, F, N) I(S, kind) I(S, tasks) L(S, arguments)

// An array that kernels read; in a plan, `address` is only known once the array is in memory.
#define FIELDS_Constant(S, P, L, I, U, F, N) P(S, const void, address) L(S, bytes)

// A plan: the steps, their structures, the arrays that they read, and the memory that a session needs.
//   slots       the caller's tensors: floats of each, for one part of a batch
//   parts       a batch is computed as this many parts, each by the same steps
//   scratch     floats of scratch memory per thread
//   nested      the structures of other structures (those of a chain): kind and position
#define FIELDS_Plan(S, P, L, I, U, F, N) \
    P(S, const Step, steps) P(S, const Step, nested) P(S, const uint8_t, structures) P(S, const Constant, constants) \
    P(S, const int64_t, slots) \
    L(S, structure_bytes) L(S, arena) L(S, scratch) \
    I(S, step_count) I(S, nested_count) I(S, constant_count) I(S, slot_count) I(S, parts) I(S, threads)

// ---------------------------------------------------------------- a plan as a file

// What lies at the offsets of an .st3run file:
//
//     FileHeader, texts, FileTensor of every input, output and state, FilePlan of every instruction set,
//     and for each plan: steps, nested, structures, slots, constants; then the arrays, each at a multiple of 64 bytes
//
// All numbers are little-endian; offsets count bytes from the start of the file; texts end with a zero byte. In a
// FilePlan, and in its table of constants, offsets stand where addresses stand in memory; plans share arrays.

#define FILE_MAGIC 0x0a0d4e5552335453  // "ST3RUN\r\n"
#define FILE_VERSION 1                 // to be raised when a field keeps its name but changes its meaning
#define FILE_SEALED 32                 // the checksum is of the bytes from here on: all after itself
#define FILE_ALIGNMENT 64
#define FILE_NUMBERS(X) X(FILE_MAGIC) X(FILE_VERSION) X(FILE_SEALED) X(FILE_ALIGNMENT)

// The first five fields and `writer` keep their places in all versions.
//   size        of the file, in bytes
//   checksum    CRC-64/XZ
//   schema      CRC-64/XZ of the text of st3_schema()
//   writer      text: the version that wrote the file
#define FIELDS_FileHeader(S, P, L, I, U, F, N) \
    L(S, magic) L(S, version) L(S, size) L(S, checksum) L(S, schema) L(S, writer) \
    L(S, tensors) L(S, plans) I(S, inputs) I(S, outputs) I(S, states) I(S, plan_count)

// name: text; shape: `dims` int64_t; contents: of a state when a session starts, 0: all zero; type: as in st3.h
#define FIELDS_FileTensor(S, P, L, I, U, F, N) L(S, name) L(S, shape) L(S, contents) I(S, dims) I(S, type)

// isa: text; variants: CRC-64/XZ of the table of tile sizes, whose numbers the plan refers to
#define FIELDS_FilePlan(S, P, L, I, U, F, N) L(S, isa) L(S, variants) N(S, Plan, plan)

// ---------------------------------------------------------------- all structures

#define AS_P(S, type, name) type* name;
#define AS_L(S, name) int64_t name;
#define AS_I(S, name) int32_t name;
#define AS_U(S, name) uint32_t name;
#define AS_F(S, name) float name;
#define AS_N(S, type, name) type name;
#define DECLARE(S) typedef struct { FIELDS_##S(S, AS_P, AS_L, AS_I, AS_U, AS_F, AS_N) } S;

// All structures, each after those that it contains.
#define ELEMENTS(D) D(Item) D(Tile) D(Block) D(Span) D(Epilogue) D(Step) D(Constant) D(Plan)
#define ARGUMENTS(D) \
    D(Sparse) D(Dense) D(Lanewise) D(Depthwise) D(Border) D(Move) D(Transpose) D(Window) D(Average) D(Combine) D(Rows) \
    D(Chain) D(Tilewise) D(Pair) D(Norm) D(GroupNorm) D(Rowwise) D(Attention) D(Numbered) D(Resample) \
    D(Quantised) D(Convert)

#define RECORDS(D) D(FileHeader) D(FileTensor) D(FilePlan)

ELEMENTS(DECLARE)
ARGUMENTS(DECLARE)
RECORDS(DECLARE)

typedef struct {
    float* const* slots;  // the caller's tensors
    float* scratch;       // this thread's buffer
    _Atomic int32_t* fault;  // of the call: 0, or what is wrong with its inputs
} Context;

typedef void (*Run)(const void* arguments, int32_t task, const Context* context);

typedef struct {
    const char* name;
    int32_t lanes, variant_count;
    // Five numbers each: rows, columns, column step, outputs per bundle, kind of step
    const int32_t* variants;
    Run run[KINDS];
} Kernels;

#endif
