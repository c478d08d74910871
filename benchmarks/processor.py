"""Measure the processor's limits for the engine: multiply-adds with one vector load each.

    registers      multiply-adds of vectors in registers, without loads
    first cache    ... with one aligned load each, from 16 KB (L1)
    split lines    ... the same, each load across two cache lines
    second cache   ... aligned, from 512 KB (L2)
    third cache    ... aligned, from 16 MB (L3)

on one thread, and on two at the same time, which shows what a second thread can gain: GFLOP/s, maximum and median of
interleaved rounds. Then what two threads pay for working on one value: both write 512 KB, wait, and read what they or
the other one wrote; nanoseconds per cache line, minimum and median. Compiles a small C program for this processor
(needs cc).
"""

import argparse
import ctypes
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from timing import record, take_turns

SOURCE = r"""
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#ifdef __AVX512F__
#define BYTES 64
#else
#define BYTES 32
#endif
#define LANES (BYTES / 4)
typedef float vec __attribute__((vector_size(BYTES)));
typedef float unaligned __attribute__((vector_size(BYTES), aligned(4)));

/* 12 sums hide the latency of the multiply-adds. */
void registers(float* out, int64_t times) {
    vec sums[12], weight = (vec){0} + 0.999f;
    for (int i = 0; i < 12; i++) sums[i] = (vec){0} + out[i];  /* different values, or the compiler would merge them */
    for (int64_t t = 0; t < times; t++)
        for (int i = 0; i < 12; i++) sums[i] = sums[i] * weight + weight;
    for (int i = 1; i < 12; i++) sums[0] += sums[i];
    for (int i = 0; i < LANES; i++) out[i] = sums[0][i];
}

void loads(const float* in, int64_t vectors, float* out, int64_t times) {
    vec sums[12] = {0}, weight = (vec){0} + 0.999f;
    for (int64_t t = 0; t < times; t++)
        for (int64_t v = 0; v + 12 <= vectors; v += 12)
            for (int i = 0; i < 12; i++) sums[i] += weight * (vec)*(const unaligned*)(in + (v + i) * LANES);
    for (int i = 1; i < 12; i++) sums[0] += sums[i];
    for (int i = 0; i < LANES; i++) out[i] = sums[0][i];
}
int64_t lanes(void) { return LANES; }

/* Write one buffer and read the other, again and again; `taken` gets the seconds of every write and read. */
static _Atomic int64_t arrived;
static void wait_for_both(int64_t* goal) {
    *goal += 2;
    for (atomic_fetch_add(&arrived, 1); atomic_load(&arrived) < *goal;) {}
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
void exchange(float* own, const float* read, int64_t lines, int64_t rounds, double* taken, float* out) {
    int64_t goal = 0;
    vec zero = {0}, sums[8] = {0};
    for (int64_t r = 0; r < rounds; r++) {
        wait_for_both(&goal);
        double begin = now();
        for (int64_t i = 0; i < lines * 16; i += LANES) *(vec*)(own + i) = zero;
        taken[2 * r] = now() - begin;
        wait_for_both(&goal);
        begin = now();
        for (int64_t i = 0; i < lines * 16; i += 8 * LANES)
            for (int k = 0; k < 8; k++) sums[k] += *(const vec*)(read + i + k * LANES);
        taken[2 * r + 1] = now() - begin;
    }
    for (int k = 1; k < 8; k++) sums[0] += sums[k];
    for (int i = 0; i < LANES; i++) out[i] = sums[0][i];
}
void begin_exchange(void) { atomic_store(&arrived, 0); }
"""
SIZES = {"first cache": 16 << 10, "split lines": 16 << 10, "second cache": 512 << 10, "third cache": 16 << 20}
PRODUCTS = 3e8  # scalar multiply-adds per timing
LINES = (512 << 10) // 64  # cache lines that each thread writes and reads in the exchange
EXCHANGES = 200  # per round


class Work:
    """One case with its own memory, so that threads share nothing."""

    def __init__(self, library: ctypes.CDLL, case: str) -> None:
        self.library, self.lanes = library, library.lanes()
        self.out = (ctypes.c_float * 64)()
        self.case, self.vectors = case, SIZES.get(case, 0) // (4 * self.lanes) // 12 * 12
        self.memory = (ctypes.c_float * (self.vectors * self.lanes + 64))(*[1.0] * 8)
        shift = -ctypes.addressof(self.memory) % 64 + (32 if case == "split lines" else 0)
        self.start = ctypes.c_void_p(ctypes.addressof(self.memory) + shift)

    @property
    def times(self) -> int:
        return max(1, round(PRODUCTS / self.lanes / (self.vectors or 12)))

    def run(self) -> None:
        times = ctypes.c_int64(self.times)
        if self.vectors:
            self.library.loads(self.start, ctypes.c_int64(self.vectors), self.out, times)
        else:
            self.library.registers(self.out, times)

    @property
    def flops(self) -> float:
        return 2.0 * self.lanes * (self.vectors or 12) * self.times


def measure_exchange(library: ctypes.CDLL, pool: ThreadPoolExecutor, rounds: int) -> list[dict[str, Any]]:
    """Return the nanoseconds per line to write a buffer, and to read one that the same or the other thread wrote."""
    memory = (ctypes.c_float * (2 * 16 * LINES + 16))()
    start = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
    buffers = [start, start + 64 * LINES]
    taken = {shift: [(ctypes.c_double * (2 * EXCHANGES))() for _ in buffers] for shift in (0, 1)}
    found: dict[tuple[int, int], list[float]] = {}
    for _ in range(rounds):
        for shift, times in taken.items():
            library.begin_exchange()

            def run(thread: int, shift: int = shift, times: list[Any] = times) -> None:
                own, read = buffers[thread], buffers[(thread + shift) % 2]
                sizes = ctypes.c_int64(LINES), ctypes.c_int64(EXCHANGES)
                out = (ctypes.c_float * 16)()
                library.exchange(ctypes.c_void_p(own), ctypes.c_void_p(read), *sizes, times[thread], out)

            list(pool.map(run, (0, 1)))
            for kind in (0, 1):
                found.setdefault((shift, kind), []).extend(
                    1e9 * each / LINES for each in times[0][2 + kind :: 2]
                )
    rows = []
    for (shift, kind), each in found.items():
        case = f"{('write', 'read')[kind]}, {('own', 'exchanged')[shift]}"
        best, middle = round(min(each), 2), round(statistics.median(each), 2)
        rows.append({"case": case, "ns per line": {"min": best, "median": middle}})
    return rows


def compile_library(folder: Path) -> ctypes.CDLL:
    source, library = folder / "limits.c", folder / "limits.so"
    source.write_text(SOURCE)
    subprocess.run(
        ["cc", "-O3", "-march=native", "-funroll-loops", "-shared", "-fPIC", "-o", library, source],
        check=True,
    )
    found = ctypes.CDLL(str(library))
    found.lanes.restype = ctypes.c_int64
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="timings of each case (default 15)")
    parser.add_argument("--output", help="JSON file for the rows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        library = compile_library(Path(folder))
        both = {case: [Work(library, case), Work(library, case)] for case in ("registers", *SIZES)}
        contestants = {}
        for case, pair in both.items():
            contestants[f"{case}, 1 thread"] = pair[0].run
            contestants[f"{case}, 2 threads"] = lambda pair=pair: [*pool.map(Work.run, pair)]
        seconds = take_turns(contestants, given.rounds)
        exchanged = measure_exchange(library, pool, given.rounds)
    rows = []
    for case, pair in both.items():
        one = [pair[0].flops / s / 1e9 for s in seconds[f"{case}, 1 thread"]]
        two = [2 * pair[0].flops / s / 1e9 for s in seconds[f"{case}, 2 threads"]]
        gains = [b / a for a, b in zip(one, two, strict=True)]
        rows.append(
            {
                "case": case,
                "GFLOP/s, 1 thread": {"max": round(max(one), 1), "median": round(statistics.median(one), 1)},
                "2 threads over 1": {
                    "least": round(min(gains), 2),
                    "median": round(statistics.median(gains), 2),
                    "most": round(max(gains), 2),
                },
            }
        )
    record(given.output, {"rounds": given.rounds, "multiply-adds per timing": PRODUCTS}, rows + exchanged)


if __name__ == "__main__":
    main()
