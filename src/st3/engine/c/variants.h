// The sizes of tile that have a kernel: X(rows, columns, column step); step 0 is any step, known only at run time.
// A tile's accumulators stay in registers, so the larger ones exist where there are 32 registers.
// Written by a loop over rows * columns <= 28; one row takes any number of columns, for planes without a border.
#ifndef ST3_VARIANTS_H
#define ST3_VARIANTS_H

#define SMALL_TILES(X)                                                                                     \
    X(1, 1, 1) X(1, 2, 1) X(1, 3, 1) X(1, 4, 1) X(1, 5, 1) X(1, 6, 1) X(1, 7, 1) X(1, 8, 1) X(1, 9, 1)     \
    X(1, 10, 1) X(1, 11, 1) X(1, 12, 1) X(1, 13, 1) X(1, 14, 1) X(2, 1, 1) X(3, 1, 1) X(4, 1, 1)           \
    X(5, 1, 1) X(6, 1, 1) X(7, 1, 1) X(8, 1, 1) X(2, 2, 1) X(3, 2, 1) X(4, 2, 1) X(5, 2, 1) X(6, 2, 1)     \
    X(7, 2, 1) X(2, 3, 1) X(3, 3, 1) X(4, 3, 1) X(2, 4, 1) X(3, 4, 1) X(2, 5, 1) X(2, 6, 1) X(2, 7, 1)     \
    X(1, 1, 2) X(1, 2, 2) X(1, 3, 2) X(1, 4, 2) X(1, 5, 2) X(1, 6, 2) X(1, 7, 2) X(1, 8, 2) X(1, 14, 2)    \
    X(2, 1, 2) X(3, 1, 2) X(4, 1, 2) X(2, 2, 2) X(3, 2, 2) X(4, 2, 2) X(2, 3, 2) X(3, 3, 2) X(4, 3, 2)     \
    X(2, 4, 2) X(3, 4, 2) X(2, 5, 2) X(2, 6, 2) X(2, 7, 2) X(1, 1, 0) X(1, 2, 0) X(1, 4, 0) X(1, 7, 0)

#define LARGE_TILES(X)                                                                                     \
    X(1, 15, 1) X(1, 16, 1) X(1, 17, 1) X(1, 18, 1) X(1, 19, 1) X(1, 20, 1) X(1, 21, 1) X(1, 22, 1)        \
    X(1, 23, 1) X(1, 24, 1) X(1, 25, 1) X(1, 26, 1) X(1, 27, 1) X(1, 28, 1) X(8, 2, 1) X(5, 3, 1)          \
    X(6, 3, 1) X(7, 3, 1) X(8, 3, 1) X(4, 4, 1) X(5, 4, 1) X(6, 4, 1) X(7, 4, 1) X(3, 5, 1) X(4, 5, 1)     \
    X(5, 5, 1) X(3, 6, 1) X(4, 6, 1) X(3, 7, 1) X(4, 7, 1) X(2, 8, 1) X(3, 8, 1) X(2, 14, 1) X(4, 4, 2)    \
    X(3, 5, 2) X(4, 5, 2) X(3, 6, 2) X(4, 6, 2) X(3, 7, 2) X(4, 7, 2) X(2, 8, 2) X(3, 8, 2)

#define SMALL_DENSE_TILES(X)                                                                               \
    X(1, 1, 1) X(1, 2, 1) X(1, 3, 1) X(1, 4, 1) X(1, 6, 1) X(2, 1, 1) X(3, 1, 1) X(4, 1, 1) X(6, 1, 1)     \
    X(2, 2, 1) X(2, 3, 1) X(3, 2, 1) X(1, 1, 2) X(1, 2, 2) X(1, 3, 2) X(1, 4, 2) X(2, 1, 2) X(3, 1, 2)     \
    X(4, 1, 2) X(2, 2, 2) X(2, 3, 2) X(3, 2, 2) X(1, 1, 0) X(1, 2, 0) X(1, 3, 0) X(1, 4, 0)

#define LARGE_DENSE_TILES(X)                                                                               \
    X(1, 5, 1) X(1, 7, 1) X(1, 8, 1) X(5, 1, 1) X(7, 1, 1) X(8, 1, 1) X(2, 4, 1) X(4, 2, 1) X(1, 5, 2)     \
    X(1, 6, 2) X(1, 7, 2) X(1, 8, 2) X(5, 1, 2) X(6, 1, 2) X(7, 1, 2) X(2, 4, 2) X(4, 2, 2) X(1, 5, 0)     \
    X(1, 6, 0) X(1, 7, 0)

#endif
