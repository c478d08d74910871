// What a chain reads and writes (kernels.c): the places between its parts are in the scratch buffer.
#include "verify.h"

typedef struct {
    const Sparse* sparse;
    const Dense* dense;
    const Lanewise* lanewise;
    const Border* border;
    const Move* move;
    const Sparse* next;
    const Depthwise* depthwise;
    const Window* window;
} Parts;

// One part, or NULL.
static int find_part(Check* check, const void* reference, int32_t kind, const void** found, const char* field) {
    *found = is_null(reference) ? 0 : st3_nested(check, reference, kind, field);
    return *found || is_null(reference);
}

static int find_parts(Check* check, const Chain* c, Parts* p) {
    return find_part(check, c->sparse, SPARSE, (const void**)&p->sparse, "sparse") &&
           find_part(check, c->dense, DENSE, (const void**)&p->dense, "dense") &&
           find_part(check, c->lanewise, LANEWISE, (const void**)&p->lanewise, "lanewise") &&
           find_part(check, c->border, BORDER, (const void**)&p->border, "border") &&
           find_part(check, c->move, MOVE, (const void**)&p->move, "move") &&
           find_part(check, c->next, SPARSE, (const void**)&p->next, "next") &&
           find_part(check, c->depthwise, DEPTHWISE, (const void**)&p->depthwise, "depthwise") &&
           find_part(check, c->window, WINDOW, (const void**)&p->window, "window") &&
           REQUIRE(check, !!p->sparse + !!p->dense + !!p->lanewise == 1, "sparse, dense, lanewise") &&
           REQUIRE(check, !!p->next + !!p->depthwise + !!p->window == 1, "next, depthwise, window") &&
           REQUIRE(check, !p->move || p->move->parts <= 1, "move");
}

// The convolution in front: its groups and images are those of the chain.
static int begin_first(Check* check, const Chain* c, const Parts* p, Cursor* cursor) {
    int32_t groups = p->sparse ? p->sparse->group_count : p->dense ? p->dense->group_count : p->lanewise->group_count;
    int32_t images = p->sparse ? p->sparse->images : p->dense ? p->dense->images : p->lanewise->images;
    if (!REQUIRE(check, groups == c->group_count && images == c->images, "group_count")) return 0;
    if (p->sparse) return st3_begin_sparse(check, p->sparse, cursor);
    return p->dense ? st3_begin_dense(check, p->dense, cursor) : st3_begin_lanewise(check, p->lanewise, cursor);
}

static int check_first(Check* check, const Chain* c, const Parts* p, Cursor* cursor, int32_t group, int32_t low) {
    const void* in = p->sparse ? p->sparse->in : p->dense ? p->dense->in : p->lanewise->in;
    Ends ends = {.out = st3_scratch(check, (wide)c->middle + c->origin - (wide)low * c->plane), .images = c->images};
    ends.in_image = p->sparse ? p->sparse->in_image : p->dense ? p->dense->in_image : p->lanewise->in_image;
    if (!st3_arena(check, in, &ends.in, "in")) return 0;
    if (p->sparse) return st3_check_sparse(check, p->sparse, cursor, group, &ends);
    return p->dense ? st3_check_dense(check, p->dense, cursor, group, &ends)
                    : st3_check_lanewise(check, p->lanewise, cursor, group, &ends);
}

static int check_second(Check* check, const Chain* c, const Parts* p, Cursor* cursor, int32_t group, int32_t low,
                        int32_t high) {
    const wide moved = (wide)c->moved + c->moved_origin;
    Ends ends = {.in = st3_scratch(check, moved), .images = c->images};
    if (p->next) {
        ends.in = st3_scratch(check, moved - (wide)low * c->moved_plane);
        ends.out_image = p->next->out_image;
        return st3_arena(check, p->next->out, &ends.out, "out") &&
               st3_check_sparse(check, p->next, cursor, group, &ends);
    }
    if (!p->depthwise) return 1;
    ends.out_image = p->depthwise->out_image;
    return st3_arena(check, p->depthwise->out, &ends.out, "out") &&
           st3_check_depthwise(check, p->depthwise, &ends, c->moved_plane, low, high - 1);
}

// The steps that work on one plane at a time, for the group with the most planes.
static int check_planes(Check* check, const Chain* c, const Parts* p, const int32_t* bounds, int32_t most) {
    const Range middle = steps(c->plane, most), moved = steps(c->moved_plane, most);
    const int32_t channels = bounds[c->group_count];
    const Place begin = st3_scratch(check, c->middle), end = st3_scratch(check, c->moved);
    Place out;
    if (p->border && !st3_check_border(check, p->border, begin, middle)) return 0;
    if (p->move && !st3_check_move(check, p->move, begin, end, middle, moved)) return 0;
    if (!p->window) return 1;
    Range images = {0, (wide)p->window->out_plane * 4 * channels * (c->images - 1), (uint64_t)p->window->out_plane * 4};
    if (images.high < 0) images = (Range){images.high, 0, images.bits};
    return st3_arena(check, p->window->out, &out, "out") &&
           st3_check_window(check, p->window, st3_scratch(check, (wide)c->moved + c->moved_origin), out, moved,
                            sum(images, steps_from(p->window->out_plane, bounds[0], channels - 1)));
}

int st3_verify_Chain(Check* check, const Chain* c, int32_t tasks) {
    Parts parts = {0};
    Cursor first = {0}, next = {0};
    if (!REQUIRE(check, c->group_count >= 1 && c->images >= 1, "group_count")) return 0;
    if (!REQUIRE(check, (wide)c->group_count * c->images == tasks, "tasks")) return 0;
    const int32_t* bounds = st3_constant(check, c->bounds, (wide)c->group_count + 1, 4, "bounds");
    if (!bounds || !find_parts(check, c, &parts) || !begin_first(check, c, &parts, &first)) return 0;
    if (parts.next && !(REQUIRE(check, parts.next->group_count == c->group_count, "group_count") &&
                        st3_begin_sparse(check, parts.next, &next)))
        return 0;
    if (!REQUIRE(check, bounds[0] >= 0, "bounds")) return 0;
    int32_t most = 0;
    for (int32_t g = 0; g < c->group_count; g++) {
        const int32_t low = bounds[g], high = bounds[g + 1];
        if (!REQUIRE(check, low < high && is_int(high), "bounds")) return 0;
        if (high - low > most) most = high - low;
        if (!check_first(check, c, &parts, &first, g, low)) return 0;
        if (!check_second(check, c, &parts, &next, g, low, high)) return 0;
    }
    return check_planes(check, c, &parts, bounds, most);
}
