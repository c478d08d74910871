// What the kernels of attention.h read and write.
#include "verify.h"

// `strides` of images, heads and rows, of `columns` floats each, in a slot or in the arena.
static int check_heads(Check* check, int32_t slot, const void* reference, int is_output, const int64_t strides[3],
                       const int32_t counts[3], int32_t columns, const char* field) {
    Place place;
    Range heads = sum(sum(steps(strides[0], counts[0]), steps(strides[1], counts[1])), steps(strides[2], counts[2]));
    return st3_slot_or_arena(check, slot, reference, is_output, &place, field) &&
           st3_inside(check, place, heads, 4 * (int64_t)columns, field);
}

// int64 numbers: `count` in all, `image` and `row` apart.
static int check_numbers(Check* check, int32_t slot, const void* reference, int64_t image, int32_t images, int64_t row,
                         int32_t rows, const char* field) {
    Place place;
    Range numbers = sum(steps(2 * image, images), steps(2 * row, rows));
    return REQUIRE(check, image >= 0 && row >= 0 && image < INT32_MAX && row < INT32_MAX, field) &&
           st3_slot_or_arena(check, slot, reference, 0, &place, field) &&
           REQUIRE(check, place.start % 8 == 0, field) && st3_inside(check, place, numbers, 8, field);
}

int st3_verify_Attention(Check* check, const Attention* a, int32_t tasks) {
    if (!REQUIRE(check, a->images >= 1 && a->heads >= 1 && a->rows >= 1, "heads")) return 0;
    if (!REQUIRE(check, a->rows_per_task >= 1 && is_int((wide)a->rows + a->rows_per_task), "rows_per_task")) return 0;
    const int32_t groups = (a->rows + a->rows_per_task - 1) / a->rows_per_task;
    if (!REQUIRE(check, (wide)a->images * a->heads * groups == tasks, "tasks")) return 0;
    if (!REQUIRE(check, a->heads_per_key >= 1 && a->heads % a->heads_per_key == 0, "heads_per_key")) return 0;
    if (!REQUIRE(check, a->length >= 1 && is_int(a->length), "length")) return 0;
    if (!REQUIRE(check, a->width >= 1 && is_int(a->width), "width")) return 0;
    if (!REQUIRE(check, a->value_width >= 1 && is_int(a->value_width), "value_width")) return 0;
    const wide pair = 2 * lanes_of(check), places = (a->length + pair - 1) / pair * pair;
    const wide scratch = a->rows_per_task > 1 ? places * (ROWS_TOGETHER + a->width) : places;
    if (!REQUIRE(check, scratch <= check->plan->scratch, "length")) return 0;
    const wide size = (wide)a->images * a->heads * a->rows * a->value_width;
    if (!REQUIRE(check, is_int(size), "value_width")) return 0;
    const int32_t keys = a->heads / a->heads_per_key;
    const int64_t query[] = {a->query_image, a->query_head, a->query_row};
    const int64_t key[] = {a->keys_image, a->keys_head, a->keys_row};
    const int64_t value[] = {a->values_image, a->values_head, a->values_row};
    const int64_t mask[] = {a->mask_image, a->mask_head, a->mask_row};
    const int64_t out[] = {0, 0, 0};
    const int32_t one[] = {1, 1, 1};
    const int32_t queries[] = {a->images, a->heads, a->rows}, cached[] = {a->images, keys, a->length};
    const int has_mask = a->mask_slot >= 0 || !is_null(a->mask), has_until = a->until_slot >= 0 || !is_null(a->until);
    return check_heads(check, a->query_slot, a->query, 0, query, queries, a->width, "query") &&
           check_heads(check, a->keys_slot, a->keys, 0, key, cached, a->width, "keys") &&
           check_heads(check, a->values_slot, a->values, 0, value, cached, a->value_width, "values") &&
           check_heads(check, a->out_slot, a->out, 1, out, one, (int32_t)size, "out") &&
           (!has_mask || check_heads(check, a->mask_slot, a->mask, 0, mask, queries, a->length, "mask")) &&
           (!has_until || check_numbers(check, a->until_slot, a->until, a->until_image, a->images, a->until_row, a->rows,
                                        "until"));
}

int st3_verify_Numbered(Check* check, const Numbered* n, int32_t tasks) {
    Place in, out;
    if (!REQUIRE(check, n->parts >= 1 && n->parts == tasks, "parts")) return 0;
    if (!REQUIRE(check, n->rows >= 1 && n->width >= 1 && n->limit >= 1 && n->limit <= INT32_MAX, "rows")) return 0;
    const Range read = sum(steps(n->in_part, n->parts), steps(n->in_row, n->is_target ? n->rows : n->limit));
    const Range write = sum(steps(n->out_part, n->parts), steps(n->out_row, n->is_target ? n->limit : n->rows));
    const int64_t bytes = 4 * (int64_t)n->width;
    const int is_table = n->in_slot < 0 && region_of(n->in) == CONSTANT;
    if (is_table) in = (Place){0, st3_constant_bytes(check, n->in)};
    else if (!st3_slot_or_arena(check, n->in_slot, n->in, 0, &in, "in")) return 0;
    Place numbers;
    const Range listed = steps(2, n->rows);
    if (!st3_slot_or_arena(check, n->numbers_slot, n->numbers, 0, &numbers, "numbers")) return 0;
    if (!st3_slot_or_arena(check, n->out_slot, n->out, 1, &out, "out")) return 0;
    const int is_one_slot = n->numbers_slot >= 0 && n->numbers_slot == n->out_slot;
    const int is_apart = numbers.start + listed.high + 8 <= out.start + write.low ||
                         out.start + write.high + bytes <= numbers.start + listed.low;
    if (!REQUIRE(check, !is_one_slot && (n->numbers_slot >= 0 || n->out_slot >= 0 || is_apart), "numbers")) return 0;
    return st3_inside(check, in, read, bytes, "in") &&
           st3_slot_or_arena(check, n->out_slot, n->out, 1, &out, "out") && st3_inside(check, out, write, bytes, "out") &&
           check_numbers(check, n->numbers_slot, n->numbers, 0, 1, 1, n->rows, "numbers");
}
