// Norms, sums, products and activations of a few rows in contiguous order.
#ifndef ST3_ROWWISE_H
#define ST3_ROWWISE_H

#include "epilogue.h"

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

INLINE const float* array_of(const float* array, int32_t slot, const Context* context) {
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
    const float* in = array_of(r->in, r->in_slot, context) + task * r->in_row;
    float* out = (float*)array_of(r->out, r->out_slot, context) + (int64_t)task * r->columns;
    const float* other = array_of(r->other, r->other_slot, context);
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
