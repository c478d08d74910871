// What the kernels of rows.h read and write.
#include "verify.h"

static int check_slices(Check* check, const Rows* r) {
    const int32_t lanes = lanes_of(check);
    const int64_t* starts = st3_constant(check, r->starts, (wide)r->slices + 1, 8, "starts");
    const int32_t* order = st3_constant(check, r->order, (wide)r->slices * lanes, 4, "order");
    if (!starts || !order || !REQUIRE(check, starts[0] >= 0, "starts")) return 0;
    for (int32_t s = 0; s < r->slices; s++) {
        if (!REQUIRE(check, starts[s] <= starts[s + 1], "starts")) return 0;
        if (!REQUIRE(check, !is_null(r->index) || starts[s + 1] - starts[s] <= r->inputs, "starts")) return 0;
    }
    for (int64_t i = 0; i < (int64_t)r->slices * lanes; i++)
        if (!REQUIRE(check, order[i] >= -1 && order[i] < r->outputs, "order")) return 0;
    const wide count = (wide)starts[r->slices] * lanes;
    if (!st3_constant(check, r->weights, count, 4, "weights")) return 0;
    if (is_null(r->index)) return 1;
    const int32_t* index = st3_constant(check, r->index, count, 4, "index");
    for (int64_t i = 0; index && i < count; i++)
        if (!REQUIRE(check, index[i] >= 0 && index[i] < r->inputs, "index")) return 0;
    return index != 0;
}

int verify_Rows(Check* check, const Rows* r, int32_t tasks) {
    Place in, out, residual;
    if (!REQUIRE(check, r->vectors >= 1 && r->inputs >= 1 && r->outputs >= 1, "vectors")) return 0;
    if (!REQUIRE(check, r->slices >= 1 && is_int((wide)r->slices * lanes_of(check)), "slices")) return 0;
    if (!REQUIRE(check, r->slices_per_task >= 1, "slices_per_task")) return 0;
    if (!REQUIRE(check, is_int((wide)r->slices + r->slices_per_task), "slices_per_task")) return 0;
    if (!REQUIRE(check, (r->slices + r->slices_per_task - 1) / r->slices_per_task == tasks, "tasks")) return 0;
    if (!REQUIRE(check, is_function(r->function), "function")) return 0;
    const Range read = {0, ((wide)r->vectors * r->inputs - 1) * 4, 0};
    const Range write = {0, ((wide)r->vectors * r->outputs - 1) * 4, 0};
    const int has_residual = r->residual_slot >= 0 || !is_null(r->residual);
    if (has_residual && !(st3_slot_or_arena(check, r->residual_slot, r->residual, 0, &residual, "residual") &&
                          st3_inside(check, residual, write, 4, "residual")))
        return 0;
    return st3_slot_or_arena(check, r->in_slot, r->in, 0, &in, "in") && st3_inside(check, in, read, 4, "in") &&
           st3_slot_or_arena(check, r->out_slot, r->out, 1, &out, "out") && st3_inside(check, out, write, 4, "out") &&
           st3_constant(check, r->bias, (wide)r->slices * lanes_of(check), 4, "bias") && check_slices(check, r);
}
