// Attention of a few rows to the keys and values of all places, and rows copied by number: what a transformer needs
// to read one token after another.
#ifndef ST3_ATTENTION_H
#define ST3_ATTENTION_H

#include "moves.h"
#include "rows.h"

#define WIDEST 8  // vectors of sums that are kept in registers

INLINE float dot(const float* a, const float* b, int32_t count) {
    vec x = {0}, y = {0};
    int32_t c = 0;
    for (; c + 2 * LANES <= count; c += 2 * LANES) {
        x += load_unaligned(a + c) * load_unaligned(b + c);
        y += load_unaligned(a + c + LANES) * load_unaligned(b + c + LANES);
    }
    for (; c < count; c += LANES) x += load_some(a + c, count - c) * load_some(b + c, count - c);
    return sum_lanes(x + y);
}

// Turns products into scores: scale * product + mask, -infinity beyond the last one. Returns the largest.
static float finish_scores(float* scores, int32_t count, float scale, const float* mask) {
    vec top = broadcast(-INFINITY);
    for (int32_t j = 0; j < count; j += LANES) {
        vec score = load(scores + j) * scale;
        if (mask) {
            vec added = load_some(mask + j, count - j);
            score = blend(added == -INFINITY, added, score + added);  // where masked, the product may be anything
        }
        for (int32_t l = count - j; l < LANES; l++) score[l] = -INFINITY;
        store(scores + j, score);
        top = vec_max(top, score);
    }
    float largest = top[0];
    for (int l = 1; l < LANES; l++) largest = top[l] > largest ? top[l] : largest;
    return largest;
}

// Turns scores into e^(score - top), and returns their sum. A score of -infinity becomes 0.
static float to_weights(float* scores, int32_t count, float top) {
    vec total = {0};
    for (int32_t j = 0; j < count; j += LANES) {
        vec score = load(scores + j);
        vec weight = apply_mask(exponential(score - top), score != -INFINITY);
        store(scores + j, weight);
        total += weight;
    }
    return sum_lanes(total);
}

// out = factor * the sum of rows, each times its weight: WIDEST vectors of columns, or one with fewer columns.
INLINE void weighted_sum(const float* weights, const float* rows, int64_t row, int32_t count, float* out, float factor) {
    vec sums[WIDEST] = {0};
    for (int32_t j = 0; j < count; j++)
        UNROLL for (int v = 0; v < WIDEST; v++)
            sums[v] += broadcast(weights[j]) * load_unaligned(rows + j * row + v * LANES);
    UNROLL for (int v = 0; v < WIDEST; v++) store_unaligned(out + v * LANES, sums[v] * factor);
}

INLINE void weighted_sum_of_some(const float* weights, const float* rows, int64_t row, int32_t count, float* out,
                                 float factor, int32_t columns) {
    vec sum = {0};
    for (int32_t j = 0; j < count; j++) sum += broadcast(weights[j]) * load_some(rows + j * row, columns);
    sum *= factor;
    memcpy(out, &sum, columns * 4);
}

// What one row of a head reads and writes.
typedef struct {
    const float *query, *keys, *values, *mask;
    float* out;
    int32_t count;  // places that it sees
} Row;

static Row find_row(const Attention* a, const Context* context, int32_t image, int32_t head, int32_t row) {
    const int32_t shared = head / a->heads_per_key;
    const float* mask = array_of(a->mask, a->mask_slot, context);
    const int64_t* until = (const int64_t*)array_of(a->until, a->until_slot, context);
    int64_t last = until ? until[image * a->until_image + row * a->until_row] : a->is_causal ? row : a->length - 1;
    return (Row){
        .query = array_of(a->query, a->query_slot, context) + image * a->query_image + head * a->query_head +
                 row * a->query_row,
        .keys = array_of(a->keys, a->keys_slot, context) + image * a->keys_image + shared * a->keys_head,
        .values = array_of(a->values, a->values_slot, context) + image * a->values_image + shared * a->values_head,
        .mask = mask ? mask + image * a->mask_image + head * a->mask_head + row * a->mask_row : 0,
        .out = (float*)array_of(a->out, a->out_slot, context) +
               (((int64_t)image * a->rows + row) * a->heads + head) * a->value_width,
        .count = last < 0 ? 0 : last < a->length ? (int32_t)last + 1 : a->length,
    };
}

// Turns products into weights, and returns the factor by which the weighted sum becomes a mean.
static float weigh(const Attention* a, const Row* row, float* scores) {
    const float top = finish_scores(scores, row->count, a->scale, row->mask);
    const float total = to_weights(scores, row->count, top == -INFINITY ? 0.0f : top);
    return total == 0.0f ? 0.0f : 1.0f / total;
}

// The columns of a weighted sum from `first` on.
static void sum_values(const Attention* a, const Row* row, const float* weights, float factor, int32_t first) {
    int32_t c = first;
    for (; c + WIDEST * LANES <= a->value_width; c += WIDEST * LANES)
        weighted_sum(weights, row->values + c, a->values_row, row->count, row->out + c, factor);
    for (; c < a->value_width; c += LANES) {
        const int32_t left = a->value_width - c;
        weighted_sum_of_some(weights, row->values + c, a->values_row, row->count, row->out + c, factor,
                             left < LANES ? left : LANES);
    }
}

// One row: keys are read one after another.
static void attend(const Attention* a, const Row* row, float* scores) {
    for (int32_t j = 0; j < row->count; j++)
        if (!row->mask || row->mask[j] != -INFINITY) scores[j] = dot(row->query, row->keys + j * a->keys_row, a->width);
    sum_values(a, row, scores, weigh(a, row, scores), 0);
}

// ---------------------------------------------------------------- several rows at a time

INLINE int64_t whole_pairs(int32_t count) { return (count + 2 * LANES - 1) / (2 * LANES) * (2 * LANES); }

// Columns of keys become rows, so that lanes are places. Places beyond the last one are zero.
static void transpose_keys(const float* keys, int64_t row, int32_t count, int32_t width, float* columns) {
    const int64_t stride = whole_pairs(count);
    for (int32_t c = 0; c < width; c += LANES)
        for (int32_t j = 0; j < stride; j += LANES) {
            vec square[LANES] = {0};
            for (int l = 0; l < LANES && j + l < count; l++) square[l] = load_some(keys + (j + l) * row + c, width - c);
            transpose(square);
            for (int l = 0; l < LANES && c + l < width; l++) store(columns + (c + l) * stride + j, square[l]);
        }
}

static void multiply_together(const Row* rows, const float* columns, int64_t stride, int32_t width, int32_t count,
                              float* scores) {
    for (int32_t j = 0; j < count; j += 2 * LANES) {
        vec sums[2 * ROWS_TOGETHER] = {0};
        for (int32_t c = 0; c < width; c++) {
            const vec a = load(columns + c * stride + j), b = load(columns + c * stride + j + LANES);
            UNROLL for (int r = 0; r < ROWS_TOGETHER; r++) {
                sums[2 * r] += broadcast(rows[r].query[c]) * a;
                sums[2 * r + 1] += broadcast(rows[r].query[c]) * b;
            }
        }
        UNROLL for (int v = 0; v < 2 * ROWS_TOGETHER; v++) store(scores + v / 2 * stride + j + v % 2 * LANES, sums[v]);
    }
}

static void sum_together(const Attention* a, const Row* rows, const float* weights, int64_t stride, int32_t count,
                         const float* factors, int32_t column) {
    vec sums[2 * ROWS_TOGETHER] = {0};
    for (int32_t j = 0; j < count; j++) {
        const float* value = rows->values + j * a->values_row + column;
        const vec x = load_unaligned(value), y = load_unaligned(value + LANES);
        UNROLL for (int r = 0; r < ROWS_TOGETHER; r++) {
            sums[2 * r] += broadcast(weights[r * stride + j]) * x;
            sums[2 * r + 1] += broadcast(weights[r * stride + j]) * y;
        }
    }
    UNROLL for (int v = 0; v < 2 * ROWS_TOGETHER; v++)
        store_unaligned(rows[v / 2].out + column + v % 2 * LANES, sums[v] * factors[v / 2]);
}

// Rows of one head; `columns` are the transposed keys, `scores` has ROWS_TOGETHER rows.
static void attend_together(const Attention* a, const Row* rows, const float* columns, float* scores) {
    const int64_t stride = whole_pairs(a->length);
    float factors[ROWS_TOGETHER];
    int32_t most = 0;
    for (int r = 0; r < ROWS_TOGETHER; r++) most = rows[r].count > most ? rows[r].count : most;
    multiply_together(rows, columns, stride, a->width, most, scores);
    for (int r = 0; r < ROWS_TOGETHER; r++) {
        factors[r] = weigh(a, rows + r, scores + r * stride);
        for (int64_t j = rows[r].count; j < most; j++) scores[r * stride + j] = 0;
    }
    int32_t c = 0;
    for (; c + 2 * LANES <= a->value_width; c += 2 * LANES) sum_together(a, rows, scores, stride, most, factors, c);
    for (int r = 0; r < ROWS_TOGETHER && c < a->value_width; r++)
        sum_values(a, rows + r, scores + r * stride, factors[r], c);
}

// Tasks: groups of rows of every head of every image. Scores and transposed keys are kept in the scratch buffer.
static void run_attention(const void* arguments, int32_t task, const Context* context) {
    const Attention* a = arguments;
    const int32_t groups = (a->rows + a->rows_per_task - 1) / a->rows_per_task;
    const int32_t first = task % groups * a->rows_per_task, head = task / groups % a->heads;
    const int32_t image = task / groups / a->heads;
    const int32_t end = first + a->rows_per_task < a->rows ? first + a->rows_per_task : a->rows;
    Row rows[ROWS_TOGETHER] = {find_row(a, context, image, head, first)};
    if (a->rows_per_task == 1) {
        attend(a, rows, context->scratch);
        return;
    }
    float* columns = context->scratch + ROWS_TOGETHER * whole_pairs(a->length);
    transpose_keys(rows->keys, a->keys_row, a->length, a->width, columns);
    for (int32_t row = first; row < end; row += ROWS_TOGETHER) {  // the last rows may be computed several times
        for (int r = 0; r < ROWS_TOGETHER; r++)
            rows[r] = find_row(a, context, image, head, row + r < end ? row + r : end - 1);
        attend_together(a, rows, columns, context->scratch);
    }
}

// The number of a row, or -1 if there is no such row.
INLINE int64_t row_number(const Numbered* n, const int64_t* at) {
    int64_t number = __atomic_load_n(at, __ATOMIC_RELAXED);
    if (number < 0 && n->wraps) number += n->limit;
    return number < n->limit && number >= 0 ? number : -1;
}

// Tasks: parts (heads of a cache). A number outside the range is a fault of the caller's input: nothing is copied then.
static void run_numbered(const void* arguments, int32_t task, const Context* context) {
    const Numbered* n = arguments;
    const int64_t* numbers = (const int64_t*)array_of(n->numbers, n->numbers_slot, context);
    const float* in = array_of(n->in, n->in_slot, context) + task * n->in_part;
    float* out = (float*)array_of(n->out, n->out_slot, context) + task * n->out_part;
    for (int32_t i = 0; i < n->rows; i++)
        if (row_number(n, numbers + i) < 0) {
            atomic_store_explicit(context->fault, BAD_NUMBER, memory_order_relaxed);
            return;
        }
    for (int32_t i = 0; i < n->rows; i++) {
        const int64_t number = row_number(n, numbers + i);  // checked again: a hostile file may change what it reads
        if (number < 0) return;
        const int64_t from = n->is_target ? i : number, to = n->is_target ? number : i;
        memcpy(out + to * n->out_row, in + from * n->in_row, n->width * 4ll);
    }
}

#endif
