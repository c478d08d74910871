// All kernels for one instruction set, whose name is ISA.
#include "attention.h"
#include "chain.h"
#include "norms.h"
#include "pairs.h"
#include "rows.h"
#include "rowwise.h"
#include "transpose.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

#define SPARSE_SIZE(R, C, S) R, C, S, SPARSE_OUTPUTS((R) * (C)), SPARSE,
#define DENSE_SIZE(R, C, S) R, C, S, DENSE_OUTPUTS((R) * (C)), DENSE,
#define DEPTHWISE_SIZE(R, C, S) R, C, S, 1, DEPTHWISE,
#define SPAN_SIZE(R, C, S) R, C, S, BUNDLE, LANEWISE,

static const int32_t sizes[] = {
    SMALL_TILES(SPARSE_SIZE)
#if ACCUMULATORS > 14
    LARGE_TILES(SPARSE_SIZE)
#endif
    SMALL_DENSE_TILES(DENSE_SIZE)
#if ACCUMULATORS > 14
    LARGE_DENSE_TILES(DENSE_SIZE)
#endif
    SMALL_DEPTHWISE_TILES(DEPTHWISE_SIZE)
#if ACCUMULATORS > 14
    LARGE_DEPTHWISE_TILES(DEPTHWISE_SIZE)
#endif
    SMALL_SPANS(SPAN_SIZE)
#if ACCUMULATORS > 14
    LARGE_SPANS(SPAN_SIZE)
#endif
};

const Kernels JOIN(st3_kernels_, ISA) = {
    .name = TEXT(ISA),
    .lanes = LANES,
    .variant_count = sizeof sizes / sizeof *sizes / 5,
    .variants = sizes,
    .run = {[SPARSE] = run_sparse, [DENSE] = run_dense, [BORDER] = run_border, [MOVE] = run_move,
            [TRANSPOSE] = run_transpose, [WINDOW] = run_window, [AVERAGE] = run_average, [COMBINE] = run_combine,
            [ROWS] = run_rows, [CHAIN] = run_chain, [TILEWISE] = run_tilewise,
            [DEPTHWISE] = run_depthwise, [LANEWISE] = run_lanewise, [PAIR] = run_pair,
            [NORM] = run_norm, [GROUP_NORM] = run_group_norm, [ROWWISE] = run_rowwise,
            [ATTENTION] = run_attention, [NUMBERED] = run_numbered},
};
