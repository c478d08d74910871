// The tile sizes that have a kernel: X(rows, columns, column step). Step 0 stands for a step known only at run time.
// A tile's sums stay in registers, so the large tiles exist only where there are 32 registers. Each size costs time when the
// library is built. Of all sizes that were tried, these are enough: in 296 layers of ResNet-50, MobileNetV1, ResNet-20 and
// VGG-11 (AVX-512 and AVX2) the fastest of them is on average 0.06 % slower than the fastest of all, and at most 3.1 %
// (results/benchmarks/tile-sizes.json).
#ifndef ST3_VARIANTS_H
#define ST3_VARIANTS_H

#define SPARSE_TILES(X)                                                                                 \
    X(1, 1, 1) X(1, 2, 1) X(1, 3, 1) X(1, 4, 1) X(1, 5, 1) X(1, 6, 1) X(1, 7, 1) X(1, 8, 1) X(1, 14, 1) \
    X(2, 1, 1) X(3, 1, 1) X(4, 1, 1) X(7, 1, 1) X(2, 2, 1) X(3, 2, 1) X(4, 2, 1) X(7, 2, 1) X(2, 3, 1)  \
    X(3, 3, 1) X(2, 4, 1) X(3, 4, 1) X(2, 5, 1) X(2, 7, 1) X(1, 1, 2) X(1, 2, 2) X(1, 3, 2) X(1, 4, 2)  \
    X(1, 7, 2) X(2, 1, 2) X(3, 1, 2) X(4, 1, 2) X(2, 2, 2) X(3, 2, 2) X(1, 1, 0) X(1, 2, 0) X(1, 4, 0)  \
    X(1, 7, 0)

#define SMALL_DENSE_TILES(X)                                                                           \
    X(1, 1, 1) X(1, 2, 1) X(1, 3, 1) X(1, 4, 1) X(2, 1, 1) X(3, 1, 1) X(2, 2, 1) X(2, 3, 1) X(1, 1, 2) \
    X(1, 2, 2) X(1, 3, 2) X(1, 4, 2) X(2, 1, 2) X(3, 1, 2) X(4, 1, 2) X(2, 2, 2) X(1, 1, 0) X(1, 2, 0) \
    X(1, 4, 0)

#define LARGE_DENSE_TILES(X) X(1, 5, 1) X(1, 6, 1) X(1, 7, 1) X(1, 7, 2) X(5, 1, 2) X(7, 1, 2) X(1, 7, 0)

#define SMALL_DEPTHWISE_TILES(X)                                                                       \
    X(1, 1, 1) X(1, 2, 1) X(1, 3, 1) X(1, 4, 1) X(2, 1, 1) X(3, 1, 1) X(4, 1, 1) X(2, 2, 1) X(1, 1, 2) \
    X(1, 2, 2) X(1, 3, 2) X(1, 4, 2) X(2, 1, 2) X(3, 1, 2) X(4, 1, 2) X(2, 2, 2)

#define LARGE_DEPTHWISE_TILES(X)                                                                       \
    X(1, 5, 1) X(1, 7, 1) X(2, 4, 1) X(4, 2, 1) X(2, 7, 1) X(7, 2, 1) X(3, 3, 1) X(3, 4, 1) X(4, 3, 1) \
    X(4, 4, 1) X(1, 7, 2) X(2, 4, 2) X(4, 2, 2) X(2, 7, 2) X(7, 2, 2) X(4, 4, 2)

// Quantised tiles have kernels of their own where an instruction multiplies and adds four bytes, and plain loops elsewhere.
#define SMALL_QUANTISED_TILES(X)                                                                           \
    X(1, 1, 1) X(1, 2, 1) X(1, 3, 1) X(1, 4, 1) X(1, 5, 1) X(1, 6, 1) X(1, 7, 1) X(1, 8, 1) X(1, 9, 1)     \
    X(1, 10, 1) X(1, 12, 1) X(1, 14, 1) X(2, 1, 1) X(3, 1, 1) X(4, 1, 1) X(5, 1, 1) X(7, 1, 1) X(2, 2, 1)  \
    X(3, 2, 1) X(4, 2, 1) X(5, 2, 1) X(7, 2, 1) X(2, 3, 1) X(3, 3, 1) X(4, 3, 1) X(2, 4, 1) X(3, 4, 1)     \
    X(2, 5, 1) X(2, 6, 1) X(2, 7, 1) X(1, 1, 2) X(1, 2, 2) X(1, 4, 2) X(1, 7, 2) X(2, 1, 2) X(4, 1, 2)     \
    X(2, 2, 2) X(4, 2, 2) X(7, 2, 2) X(2, 7, 2) X(7, 1, 2) X(1, 14, 2) X(1, 1, 0) X(1, 2, 0) X(1, 4, 0)

#define LARGE_QUANTISED_TILES(X)                                                                           \
    X(1, 16, 1) X(1, 20, 1) X(1, 24, 1) X(1, 25, 1) X(1, 28, 1) X(7, 3, 1) X(7, 4, 1) X(3, 7, 1)           \
    X(4, 7, 1) X(2, 14, 1) X(4, 4, 1) X(4, 4, 2) X(2, 14, 2)

// Span sizes: two vectors of sums per lane stay in registers. The column step is not used.
#define SMALL_SPANS(X)                                                                                     \
    X(1, 1, 1) X(1, 2, 1) X(1, 3, 1) X(1, 4, 1) X(1, 5, 1) X(1, 6, 1) X(2, 1, 1) X(2, 2, 1) X(2, 3, 1)     \
    X(3, 1, 1) X(3, 2, 1) X(4, 1, 1)

#define LARGE_SPANS(X)                                                                                     \
    X(1, 7, 1) X(1, 8, 1) X(1, 9, 1) X(1, 10, 1) X(1, 11, 1) X(1, 12, 1) X(1, 13, 1) X(1, 14, 1)           \
    X(2, 4, 1) X(2, 5, 1) X(2, 6, 1) X(2, 7, 1) X(3, 3, 1) X(3, 4, 1) X(4, 2, 1) X(4, 3, 1) X(5, 2, 1)     \
    X(6, 2, 1) X(7, 2, 1)

// ---------------------------------------------------------------- all sizes of this instruction set

#if ACCUMULATORS > 14
#define DENSE_TILES(X) SMALL_DENSE_TILES(X) LARGE_DENSE_TILES(X)
#define DEPTHWISE_TILES(X) SMALL_DEPTHWISE_TILES(X) LARGE_DEPTHWISE_TILES(X)
#define QUANTISED_TILES(X) SMALL_QUANTISED_TILES(X) LARGE_QUANTISED_TILES(X)
#define SPANS(X) SMALL_SPANS(X) LARGE_SPANS(X)
#else
#define DENSE_TILES(X) SMALL_DENSE_TILES(X)
#define DEPTHWISE_TILES(X) SMALL_DEPTHWISE_TILES(X)
#define QUANTISED_TILES(X) SMALL_QUANTISED_TILES(X)
#define SPANS(X) SMALL_SPANS(X)
#endif

#endif
