// Steps on a few rows in contiguous order: a matrix times these vectors; norms, sums, products and activations.
#ifndef ST3_ROWS_H
#define ST3_ROWS_H

#include "epilogue.h"

// ---------------------------------------------------------------- a matrix times a few vectors

// Lanes are outputs, so that sums never cross lanes: a slice of LANES outputs with similar numbers of weights is a list
// of (LANES weights, LANES input positions). A dense matrix has no positions.

INLINE vec sparse_sum(const float* weight, const int32_t* index, int64_t count, const float* in) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 3 < count; i += 4, weight += 4 * LANES, index += 4 * LANES) {
        a += load(weight) * gather(in, *(const ivec*)index);
        b += load(weight + LANES) * gather(in, *(const ivec*)(index + LANES));
        c += load(weight + 2 * LANES) * gather(in, *(const ivec*)(index + 2 * LANES));
        d += load(weight + 3 * LANES) * gather(in, *(const ivec*)(index + 3 * LANES));
    }
    for (; i < count; i++, weight += LANES, index += LANES) a += load(weight) * gather(in, *(const ivec*)index);
    return (a + b) + (c + d);
}

INLINE vec dense_sum(const float* weight, int64_t count, const float* in) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 3 < count; i += 4, weight += 4 * LANES) {
        __builtin_prefetch(weight + 32 * LANES);
        __builtin_prefetch(weight + 33 * LANES);
        __builtin_prefetch(weight + 34 * LANES);
        __builtin_prefetch(weight + 35 * LANES);
        a += load(weight) * broadcast(in[i]);
        b += load(weight + LANES) * broadcast(in[i + 1]);
        c += load(weight + 2 * LANES) * broadcast(in[i + 2]);
        d += load(weight + 3 * LANES) * broadcast(in[i + 3]);
    }
    for (; i < count; i++, weight += LANES) a += load(weight) * broadcast(in[i]);
    return (a + b) + (c + d);
}

static void rows_slice(const Rows* r, int32_t slice, const float* in, float* out, const float* residual) {
    const float* weight = r->weights + r->starts[slice] * LANES;
    int64_t count = r->starts[slice + 1] - r->starts[slice];
    vec total = load(r->bias + slice * LANES);
    total += r->index ? sparse_sum(weight, r->index + r->starts[slice] * LANES, count, in) : dense_sum(weight, count, in);
    const int32_t* order = r->order + slice * LANES;
    if (residual)
        for (int l = 0; l < LANES; l++)
            if (order[l] >= 0) total[l] += residual[order[l]];
    total = vec_min(broadcast(r->high), vec_max(broadcast(r->low), total));
    if (r->function) total = activate(total, r->function);
    for (int l = 0; l < LANES; l++)
        if (order[l] >= 0) out[order[l]] = total[l];
}

// Tasks: ranges of slices, for all vectors.
static void run_rows(const void* arguments, int32_t task, const Context* context) {
    const Rows* r = arguments;
    const float* in = r->in_slot < 0 ? r->in : context->slots[r->in_slot];
    float* out = r->out_slot < 0 ? r->out : context->slots[r->out_slot];
    const float* residual = r->residual_slot < 0 ? r->residual : context->slots[r->residual_slot];
    int32_t end = (task + 1) * r->slices_per_task;
    if (end > r->slices) end = r->slices;
    for (int32_t slice = task * r->slices_per_task; slice < end; slice++)
        for (int32_t v = 0; v < r->vectors; v++)
            rows_slice(r, slice, in + (int64_t)v * r->inputs, out + (int64_t)v * r->outputs,
                       residual ? residual + (int64_t)v * r->outputs : 0);
}

// ---------------------------------------------------------------- norms, sums, products, activations

INLINE vec load_some(const float* p, int32_t count) {
    if (count >= LANES) return load_unaligned(p);
    vec v = {0};
    memcpy(&v, p, count * 4);
    return v;
}

INLINE float sum_lanes(vec v) {
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += v[l];
    return sum;
}

INLINE const float* rowwise_array(const float* array, int32_t slot, const Context* context) {
    return slot < 0 ? array : context->slots[slot];
}

// The factor that a norm multiplies with: 1 / sqrt(mean of the squared differences from `mean`, plus eps).
static float norm_factor(const float* in, int32_t columns, float mean, float eps) {
    vec total = {0};
    int32_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
        vec x = load_unaligned(in + c) - mean;
        total += x * x;
    }
    float sum = sum_lanes(total);
    for (; c < columns; c++) sum += (in[c] - mean) * (in[c] - mean);
    return 1.0f / sqrtf(sum / columns + eps);
}

// Tasks: rows.
static void run_rowwise(const void* arguments, int32_t task, const Context* context) {
    const Rowwise* r = arguments;
    const float* in = rowwise_array(r->in, r->in_slot, context) + task * r->in_row;
    float* out = (float*)rowwise_array(r->out, r->out_slot, context) + (int64_t)task * r->columns;
    const float* other = rowwise_array(r->other, r->other_slot, context);
    if (other) other += task * r->other_row;
    float mean = 0, factor = 1;
    if (r->is_norm) {
        vec total = {0};
        if (r->is_centred)
            for (int32_t c = 0; c < r->columns; c += LANES) total += load_some(in + c, r->columns - c);
        mean = sum_lanes(total) / r->columns;
        factor = norm_factor(in, r->columns, mean, r->eps);
    }
    for (int32_t c = 0; c < r->columns; c += LANES) {
        int32_t count = r->columns - c < LANES ? r->columns - c : LANES;
        vec x = (load_some(in + c, count) - mean) * factor;
        if (r->scale) x *= load_some(r->scale + c, count);
        if (r->shift) x += load_some(r->shift + c, count);
        if (other) {
            vec y = r->other_row == 1 ? broadcast(*other) : load_some(other + c, count);
            x = r->is_product ? x * y : x + y;
        }
        x = vec_min(broadcast(r->high), vec_max(broadcast(r->low), x));
        if (r->function) x = activate(x, r->function);
        memcpy(out + c, &x, count * 4);
    }
}

#endif
