// Attention of a few rows to the keys and values of all places, and rows copied by number: what a transformer needs
// to read one token after another.
#ifndef ST3_ATTENTION_H
#define ST3_ATTENTION_H

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

// Turns scores into e^(score - top), and returns their sum. A score of -infinity becomes 0.
static float to_weights(float* scores, int32_t count, float top) {
    vec total = {0};
    for (int32_t j = count; j % LANES; j++) scores[j] = -INFINITY;
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

// Tasks: rows of every head of every image. The scores are kept in the scratch buffer.
static void run_attention(const void* arguments, int32_t task, const Context* context) {
    const Attention* a = arguments;
    const int32_t row = task % a->rows, head = task / a->rows % a->heads, image = task / a->rows / a->heads;
    const int32_t shared = head / a->heads_per_key;
    const float* query = array_of(a->query, a->query_slot, context) + image * a->query_image + head * a->query_head +
                         row * a->query_row;
    const float* keys = array_of(a->keys, a->keys_slot, context) + image * a->keys_image + shared * a->keys_head;
    const float* values =
        array_of(a->values, a->values_slot, context) + image * a->values_image + shared * a->values_head;
    const float* mask = array_of(a->mask, a->mask_slot, context);
    if (mask) mask += image * a->mask_image + head * a->mask_head + row * a->mask_row;
    const int64_t* until = (const int64_t*)array_of(a->until, a->until_slot, context);
    int64_t last = until ? until[image * a->until_image + row * a->until_row] : a->is_causal ? row : a->length - 1;
    const int32_t count = last < 0 ? 0 : last < a->length ? (int32_t)last + 1 : a->length;

    float* scores = context->scratch;
    float top = -INFINITY;
    for (int32_t j = 0; j < count; j++) {
        scores[j] = -INFINITY;
        if (mask && mask[j] == -INFINITY) continue;
        scores[j] = dot(query, keys + j * a->keys_row, a->width) * a->scale + (mask ? mask[j] : 0.0f);
        if (scores[j] > top) top = scores[j];
    }
    const float total = to_weights(scores, count, top == -INFINITY ? 0.0f : top);
    const float factor = total == 0.0f ? 0.0f : 1.0f / total;
    float* out = (float*)array_of(a->out, a->out_slot, context) +
                 (((int64_t)image * a->rows + row) * a->heads + head) * a->value_width;
    int32_t c = 0;
    for (; c + WIDEST * LANES <= a->value_width; c += WIDEST * LANES)
        weighted_sum(scores, values + c, a->values_row, count, out + c, factor);
    for (; c < a->value_width; c += LANES) {
        const int32_t left = a->value_width - c;
        weighted_sum_of_some(scores, values + c, a->values_row, count, out + c, factor, left < LANES ? left : LANES);
    }
}

// Tasks: parts (heads of a cache). A number outside the range is a fault of the caller's input.
static void run_numbered(const void* arguments, int32_t task, const Context* context) {
    const Numbered* n = arguments;
    const int64_t* numbers = (const int64_t*)array_of(n->numbers, n->numbers_slot, context);
    const float* in = array_of(n->in, n->in_slot, context) + task * n->in_part;
    float* out = (float*)array_of(n->out, n->out_slot, context) + task * n->out_part;
    for (int32_t i = 0; i < n->rows; i++) {
        if (numbers[i] < 0 || numbers[i] >= n->limit) {
            atomic_store_explicit(context->fault, BAD_NUMBER, memory_order_relaxed);
            return;
        }
        const int64_t from = n->is_target ? i : numbers[i], to = n->is_target ? numbers[i] : i;
        memcpy(out + to * n->out_row, in + from * n->in_row, n->width * 4ll);
    }
}

#endif
