// Calls every convolution kernel of one instruction set and compares it with plain loops; run by test_every_kernel.py.
//
//     every_kernel ISA [SEED]
//
// Each kernel computes one tile with random weights, a residual, a clamp and a mask; transposes go there and back;
// resampling reads pixels at random.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

#define CHANNELS 3
#define MOST 4096   // floats or numbers in a small array
#define LARGE 65536 // floats in a large one

const Kernels* st3_kernels(const char* wanted);

static const Kernels* kernels;
static float *in, *out, *residual, *weights, *bias, *scratch;
static int32_t* mask;
static double want[LARGE];
static int failures;

static float number(void) { return rand() / ((float)RAND_MAX / 2) - 1; }

static void* aligned(int64_t count) {
    void* block = aligned_alloc(64, count * 4);
    if (!block) exit(2);
    memset(block, 0, count * 4);
    return block;
}

static void fill(void) {
    for (int i = 0; i < LARGE; i++) in[i] = number(), residual[i] = number(), weights[i] = number(), out[i] = 0;
    for (int i = 0; i < MOST; i++) bias[i] = number(), mask[i] = -(rand() % 4 > 0);
}

// `index` counts floats of the output, `at` those of one plane.
static double finish(double sum, int index, int at) {
    sum = fmin(1.5, fmax(-0.5, sum + residual[index]));
    return mask[at] ? sum : 0;
}

static void compare(const char* name, const int32_t* size, int count) {
    for (int i = 0; i < count; i++)
        if (!(fabs(out[i] - want[i]) < 1e-4)) {
            printf("%s %dx%d step %d: output %d is %g instead of %g\n", name, size[0], size[1], size[2], i, out[i], want[i]);
            failures++;
            return;
        }
}

// A tile of `size`: the input has room for 3x3 taps.
typedef struct {
    int step, pitch, plane, vectors, outputs, end;
    Epilogue epilogue;
    Tile tile;
} Problem;

static Problem problem(const int32_t* size, int number_of_kernel) {
    const int lanes = kernels->lanes, step = size[2] ? size[2] : 3;
    Problem p = {.step = step, .pitch = ((size[1] - 1) * step + 3) * lanes, .vectors = size[0] * size[1]};
    p.plane = ((size[0] - 1) * step + 3) * p.pitch;
    p.outputs = 2 * size[3] + 1;  // the last bundle is not full
    p.end = p.vectors * lanes;
    p.epilogue = (Epilogue){residual, 0, p.end, size[1] * lanes, mask, -0.5f, 1.5f, PLAIN};
    p.tile.kernel = number_of_kernel;
    fill();
    return p;
}

// The input of lane `at` of the output for a tap.
static float input(const Problem* p, const int32_t* size, int at, int tap) {
    const int lanes = kernels->lanes, row = at / lanes / size[1], column = at / lanes % size[1];
    return in[row * p->step * p->pitch + column * p->step * lanes + at % lanes + tap];
}

static int some_tap(const Problem* p) {
    return rand() % CHANNELS * p->plane + rand() % 3 * p->pitch + rand() % 3 * kernels->lanes;
}

static void try_sparse(const int32_t* size, int kernel) {
    Problem p = problem(size, kernel);
    const int bundle = size[3], bundles = 3;
    static uint32_t items[MOST];
    int32_t outputs[2 * MOST], lengths[6], groups[] = {0, 2}, length = 5;
    Block blocks[] = {{0, 0, bundles, 1, 0, 0}, {(int64_t)bundles * length * bundle, bundles, bundles, 0, 1, 0}};
    for (int o = 0; o < p.outputs; o++)
        for (int at = 0; at < p.end; at++) want[o * p.end + at] = bias[o];
    for (int n = 0; n < 2 * bundles; n++) {
        lengths[n] = length;
        for (int k = 0; k < bundle; k++) {
            int o = n % bundles * bundle + k;
            outputs[n * bundle + k] = o < p.outputs ? o : -1;
            for (int i = 0; i < length; i++) {
                int tap = some_tap(&p);
                float weight = number();
                uint32_t* item = items + ((n * length + i) * bundle) * 2 + k;
                item[0] = tap * 4;
                memcpy(item + bundle, &weight, 4);
                for (int at = 0; o < p.outputs && at < p.end; at++)
                    want[o * p.end + at] += (double)weight * input(&p, size, at, tap);
            }
        }
    }
    for (int i = 0; i < p.outputs * p.end; i++) want[i] = finish(want[i], i, i % p.end);
    Sparse s = {.in = in, .out = out, .bias = bias, .epilogue = p.epilogue, .items = (const Item*)items,
                .outputs = outputs, .lengths = lengths, .blocks = blocks, .groups = groups, .tiles = &p.tile,
                .out_plane = p.end, .in_row = p.step * p.pitch, .out_row = size[1] * kernels->lanes,
                .mask_row = size[1] * kernels->lanes, .in_column = p.step * kernels->lanes, .group_count = 1,
                .tile_count = 1, .images = 1};
    kernels->run[SPARSE](&s, 0, &(Context){0, scratch});
    compare("sparse", size, p.outputs * p.end);
}

// Bytes by signed bytes, in two blocks, with a residual; every byte of the result must be right.
static void try_quantised(const int32_t* size, int kernel) {
    Problem p = problem(size, kernel);
    const int bundle = size[3], all = 4 * ((2 * bundle + 3) / 4), bundles = (all + bundle - 1) / bundle;
    static uint32_t items[4 * MOST];
    static int32_t sums[LARGE];
    int32_t outputs[2 * MOST], lengths[2 * MOST], groups[] = {0, 2}, bounds[] = {0, all}, length = 5;
    uint8_t* bytes = (uint8_t*)in;
    for (int i = 0; i < 4 * LARGE; i++) bytes[i] = rand(), ((uint8_t*)residual)[i] = rand();
    memset(sums, 0, sizeof sums);
    Block blocks[] = {{0, 0, bundles, 1, 0, 0}, {(int64_t)bundles * length * bundle, bundles, bundles, 0, 1, 0}};
    for (int n = 0; n < 2 * bundles; n++) {
        lengths[n] = length;
        for (int k = 0; k < bundle; k++) {
            int o = n % bundles * bundle + k;
            outputs[n * bundle + k] = o < all ? o : -1;
            for (int i = 0; i < length; i++) {
                int tap = some_tap(&p);
                int8_t weight[4];
                for (int c = 0; c < 4; c++) weight[c] = rand() % 255 - 127;
                uint32_t* item = items + ((n * length + i) * bundle) * 2 + k;
                item[0] = tap * 4;
                memcpy(item + bundle, weight, 4);
                for (int at = 0; o < all && at < p.end; at++) {
                    const float word = input(&p, size, at, tap);
                    uint8_t of_word[4];
                    memcpy(of_word, &word, 4);
                    for (int c = 0; c < 4; c++) sums[o * p.end + at] += of_word[c] * weight[c];
                }
            }
        }
    }
    float scale[2 * MOST];
    for (int o = 0; o < all; o++) scale[o] = 0.0005f + 0.0001f * (o % 7), bias[o] = 60 + o % 9;
    Sparse s = {.in = in, .out = out, .bias = bias, .epilogue = p.epilogue, .items = (const Item*)items,
                .outputs = outputs, .lengths = lengths, .blocks = blocks, .groups = groups, .tiles = &p.tile,
                .out_plane = p.end, .in_row = p.step * p.pitch, .out_row = size[1] * kernels->lanes,
                .mask_row = size[1] * kernels->lanes, .in_column = p.step * kernels->lanes, .group_count = 1,
                .tile_count = 1, .images = 1};
    Quantised q = {.lists = &s, .scale = scale, .bounds = bounds, .residual_scale = 0.25f, .outside = 0x07070707};
    kernels->run[QUANTISED](&q, 0, &(Context){0, scratch});
    const uint8_t *got = (const uint8_t*)out, *added = (const uint8_t*)residual;
    for (int o = 0; o < all; o++)
        for (int at = 0; at < p.end; at++) {
            const int place = 4 * (o / 4 * p.end + at) + o % 4;
            double y = (double)sums[o * p.end + at] * scale[o] + bias[o] + 0.25 * added[place];
            y = mask[at] ? fmin(255, fmax(0, y)) : 7;
            if (fabs(got[place] - y) < 0.501) continue;
            printf("quantised %dx%d step %d: byte %d is %d instead of %g\n", size[0], size[1], size[2], place, got[place], y);
            failures++;
            return;
        }
}

static void try_dense(const int32_t* size, int kernel) {
    Problem p = problem(size, kernel);
    enum { TAPS = 9 };
    const int bundle = size[3], bundles = 3;
    int32_t taps[TAPS], blocks[] = {0, 4, TAPS}, bounds[] = {0, p.outputs};
    int64_t starts[] = {0, 4 * bundle * bundles};
    for (int t = 0; t < TAPS; t++) taps[t] = some_tap(&p) * 4;
    for (int o = 0; o < p.outputs; o++)
        for (int at = 0; at < p.end; at++) {
            double sum = bias[o];
            for (int t = 0; t < TAPS; t++) {
                int b = t >= 4, first = blocks[b], each = blocks[b + 1] - first;
                float weight = weights[starts[b] + (o / bundle * each + t - first) * bundle + o % bundle];
                sum += (double)weight * input(&p, size, at, taps[t] / 4);
            }
            want[o * p.end + at] = finish(sum, o * p.end + at, at);
        }
    Dense d = {.in = in, .out = out, .bias = bias, .epilogue = p.epilogue, .weights = weights, .starts = starts,
               .taps = taps, .blocks = blocks, .bounds = bounds, .tiles = &p.tile, .out_plane = p.end,
               .in_row = p.step * p.pitch, .out_row = size[1] * kernels->lanes, .mask_row = size[1] * kernels->lanes,
               .in_column = p.step * kernels->lanes, .block_count = 2, .group_count = 1, .tile_count = 1, .images = 1};
    kernels->run[DENSE](&d, 0, &(Context){0, scratch});
    compare("dense", size, p.outputs * p.end);
}

static void try_depthwise(const int32_t* size, int kernel) {
    Problem p = problem(size, kernel);
    for (int i = 0; i < CHANNELS * p.end; i++) {
        const int channel = i / p.end, at = i % p.end;
        double sum = bias[channel];
        for (int k = 0; k < 9; k++)
            sum += (double)weights[channel * 9 + k] *
                   input(&p, size, at, channel * p.plane + k / 3 * p.pitch + k % 3 * kernels->lanes);
        want[i] = finish(sum, i, at);
    }
    Depthwise d = {.in = in, .out = out, .bias = bias, .epilogue = p.epilogue, .weights = weights, .tiles = &p.tile,
                   .in_plane = p.plane, .out_plane = p.end, .in_row = p.pitch, .out_row = size[1] * kernels->lanes,
                   .mask_row = size[1] * kernels->lanes, .channels = CHANNELS, .channels_per_task = CHANNELS,
                   .tile_count = 1, .images = 1, .parts = 1, .starts = (const int32_t[]){0, 1}};
    kernels->run[DEPTHWISE](&d, 0, &(Context){0, scratch});
    compare("depthwise", size, CHANNELS * p.end);
}

// Returns whether the span fits a vector.
static int try_lanewise(const int32_t* size, int kernel) {
    const int lanes = kernels->lanes, row = size[0] == 1 ? lanes : lanes / size[0], bundle = size[3];
    if (size[1] > row) return 0;
    enum { TAPS = 9, BEYOND = 8 };  // the kernel reads taps beyond the last
    int32_t one[] = {1, 1, 1, bundle}, taps[TAPS + BEYOND] = {0}, bounds[] = {0, 0};
    Problem p = problem(one, 0);
    int64_t starts[] = {0, 3 * TAPS * bundle};
    Span span = {0, kernel, 1};
    bounds[1] = p.outputs;
    for (int t = 0; t < TAPS; t++) taps[t] = some_tap(&p) * 4;
    for (int l = 0; l < lanes; l++) mask[l] = -(l / row < size[0] && l % row < size[1]);
    for (int o = 0; o < p.outputs; o++)
        for (int l = 0; l < lanes; l++) {
            double sum = bias[o];
            for (int t = 0; t < TAPS; t++)
                sum += (double)weights[(o / bundle * TAPS + t) * bundle + o % bundle] * input(&p, one, l, taps[t] / 4);
            want[o * lanes + l] = finish(sum, o * lanes + l, l);
        }
    Lanewise a = {.in = in, .out = out, .bias = bias, .epilogue = p.epilogue, .weights = weights, .starts = starts,
                  .taps = taps, .bounds = bounds, .tiles = &p.tile, .spans = &span, .out_plane = p.end,
                  .lane_row = row, .tap_count = TAPS, .group_count = 1, .tile_count = 1, .images = 1};
    kernels->run[LANEWISE](&a, 0, &(Context){0, scratch});
    compare("lanewise", size, p.outputs * p.end);
    return 1;
}

static void try_transpose(void) {
    const int lanes = kernels->lanes, columns = lanes + 3, width = 2, rows = 2 * lanes - 1;
    const int32_t size[] = {rows, columns, 0};
    fill();
    for (int i = 0; i < rows * columns; i++) want[i] = in[i];
    Transpose there = {in, scratch, width * lanes, -1, -1, rows, columns, width, 0};
    Transpose back = {scratch, out, width * lanes, -1, -1, rows, columns, width, 1};
    for (int task = 0; task < 2; task++) kernels->run[TRANSPOSE](&there, task, &(Context){0, 0});
    for (int row = 0; row < rows; row++)  // row l * width + x is lane l of vector x
        if (scratch[row % width * lanes + row / width] != in[row * columns]) failures++;
    for (int task = 0; task < 2; task++) kernels->run[TRANSPOSE](&back, task, &(Context){0, 0});
    compare("transpose", size, rows * columns);
}

static void try_resample(void) {
    enum { TAPS = 3, VECTORS = 5, PLANES = 3 };
    const int lanes = kernels->lanes, numbers = VECTORS * TAPS * lanes, plane = VECTORS * lanes;
    const int32_t size[] = {VECTORS, TAPS, 0};
    static int32_t index[MOST];
    fill();
    for (int i = 0; i < numbers; i++) index[i] = rand() % 4 ? rand() % 50 : -1;
    for (int i = 0; i < PLANES * plane; i++) {
        want[i] = 0;
        for (int t = 0; t < TAPS; t++) {
            const int at = (i % plane / lanes * TAPS + t) * lanes + i % lanes;
            if (index[at] >= 0) want[i] += (double)weights[at] * in[i / plane * 60 + index[at]];
        }
    }
    Resample r = {.in = in, .out = out, .index = index, .weights = weights, .in_plane = 60, .out_plane = plane,
                  .vectors = VECTORS, .taps = TAPS, .planes = PLANES, .planes_per_task = 2};
    for (int task = 0; task < 2; task++) kernels->run[RESAMPLE](&r, task, &(Context){0, 0});
    compare("resample", size, PLANES * plane);
}

int main(int count, char** arguments) {
    kernels = count > 1 ? st3_kernels(arguments[1]) : 0;
    if (!kernels || strcmp(kernels->name, arguments[1])) return printf("not available\n") < 0;
    srand(count > 2 ? atoi(arguments[2]) : 0);
    in = aligned(LARGE), out = aligned(LARGE), residual = aligned(LARGE), weights = aligned(LARGE);
    scratch = aligned(LARGE), bias = aligned(MOST), mask = aligned(MOST);
    int tried = 0, of_kind[KINDS] = {0};
    for (int i = 0; i < kernels->variant_count; i++) {
        const int32_t* size = kernels->variants + 5 * i;
        const int kernel = of_kind[size[4]]++;
        switch (size[4]) {
            case SPARSE: try_sparse(size, kernel), tried++; break;
            case QUANTISED: try_quantised(size, kernel), tried++; break;
            case DENSE: try_dense(size, kernel), tried++; break;
            case DEPTHWISE: try_depthwise(size, kernel), tried++; break;
            case LANEWISE: tried += try_lanewise(size, kernel); break;
            default: printf("kind %d is not tried\n", size[4]), failures++;
        }
    }
    try_transpose();
    try_resample();
    printf("%s: %d kernels, %d failures\n", kernels->name, tried, failures);
    return failures > 0;
}
