#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef BLOCK
#define BLOCK (2 << 20)  // bytes of a huge page; smaller under a sanitizer, so that it detects overruns
#endif
#define SPINS 4000  // a few microseconds: threads stay awake for a caller in a loop, and sleep in an idle process

typedef struct {
    Pool* pool;
    float* scratch;
    pthread_t thread;
    _Alignas(64) _Atomic int32_t next;  // the next task in this worker's range
} Worker;

struct Pool {
    pid_t process;  // the one that started the threads: a forked child has none of them
    int32_t threads, stopping;
    Worker* workers;  // the first is the calling thread
    const Kernels* kernels;
    const Step* steps;
    int32_t count;
    float* const* slots;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int32_t sleeping;
    _Alignas(64) _Atomic uint32_t generation;  // plans started
    _Alignas(64) _Atomic int32_t arrived;      // threads that have finished the current step
    _Alignas(64) _Atomic uint32_t step;        // steps finished since the pool started
};

void* st3_allocate(int64_t bytes) {
    bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    void* block = aligned_alloc(BLOCK, bytes);
    if (!block) return 0;
#if defined(__linux__)
    madvise(block, bytes, MADV_HUGEPAGE);  // planes lie far apart: small pages would cause TLB misses
#endif
    memset(block, 0, bytes);
    return block;
}

void st3_release(void* block) { free(block); }

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Every thread has a range of tasks; a thread that runs out takes tasks from the others' ranges. Where possible, steps
// number their tasks by tile: a thread then reads what it wrote itself, not what is in another core's cache.
static void take_tasks(Pool* pool, int32_t self, const Step* step, Run run, const Context* context) {
    int32_t threads = pool->threads;
    for (int32_t i = 0; i < threads; i++) {
        int32_t owner = (self + i) % threads;
        int32_t first = (int64_t)step->tasks * owner / threads, end = (int64_t)step->tasks * (owner + 1) / threads;
        int32_t chunk = (end - first) / 8, t;  // several tasks per atomic operation
        if (chunk < 1) chunk = 1;
        while ((t = first + atomic_fetch_add_explicit(&pool->workers[owner].next, chunk, memory_order_relaxed)) < end)
            for (int32_t stop = t + chunk < end ? t + chunk : end; t < stop; t++) run(step->arguments, t, context);
    }
}

static void work(Pool* pool, int32_t self) {
    // Copied first: when the last step ends, the caller may start the next plan before this thread reads the pool again.
    const Step* steps = pool->steps;
    const Kernels* kernels = pool->kernels;
    const int32_t count = pool->count;
    Context context = {pool->slots, pool->workers[self].scratch};
    for (int32_t s = 0; s < count; s++) {
        const Step* step = steps + s;
        Run run = kernels->run[step->kind];
        if (pool->threads == 1) {
            for (int32_t t = 0; t < step->tasks; t++) run(step->arguments, t, &context);
            continue;
        }
        uint32_t now = atomic_load_explicit(&pool->step, memory_order_acquire);
        take_tasks(pool, self, step, run, &context);
        if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) == pool->threads - 1) {
            atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
            for (int32_t i = 0; i < pool->threads; i++)
                atomic_store_explicit(&pool->workers[i].next, 0, memory_order_relaxed);
            atomic_store_explicit(&pool->step, now + 1, memory_order_release);
        } else {
            // With more threads than free cores, let the others run after a while.
            for (int spins = 0; atomic_load_explicit(&pool->step, memory_order_acquire) == now; spins++)
                if (spins < SPINS) relax();
                else sched_yield();
        }
    }
}

static void* worker_main(void* argument) {
    Worker* worker = argument;
    Pool* pool = worker->pool;
    uint32_t seen = 0;
    for (;;) {
        for (int spins = 0; spins < SPINS && atomic_load_explicit(&pool->generation, memory_order_acquire) == seen;
             spins++)
            relax();
        if (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&pool->lock);
            pool->sleeping++;
            while (atomic_load_explicit(&pool->generation, memory_order_acquire) == seen)
                pthread_cond_wait(&pool->wake, &pool->lock);
            pool->sleeping--;
            pthread_mutex_unlock(&pool->lock);
        }
        seen++;
        if (pool->stopping) return 0;
        work(pool, worker - pool->workers);
    }
}

static void start_generation(Pool* pool) {
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    if (pool->sleeping) pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

Pool* st3_pool_new(int32_t threads, int64_t scratch_floats) {
    Pool* pool = aligned_alloc(64, (sizeof(Pool) + 63) / 64 * 64);
    if (!pool) return 0;
    *pool = (Pool){.process = getpid()};
    pthread_mutex_init(&pool->lock, 0);
    pthread_cond_init(&pool->wake, 0);
    pool->workers = aligned_alloc(64, threads * sizeof(Worker));
    int64_t bytes = scratch_floats * 4 + 64;
    int failed = !pool->workers;
    if (!failed) memset(pool->workers, 0, threads * sizeof(Worker));
    for (int32_t i = 0; i < threads && !failed; i++) {
        Worker* worker = pool->workers + i;
        worker->pool = pool;
        worker->scratch = st3_allocate(bytes);
        failed = !worker->scratch || (i && pthread_create(&worker->thread, 0, worker_main, worker));
        if (failed) free(worker->scratch);
        else pool->threads++;
    }
    if (!failed) return pool;
    st3_pool_free(pool);
    return 0;
}

void st3_pool_free(Pool* pool) {
    if (!pool) return;
    if (pool->process == getpid()) {
        pool->stopping = 1;
        start_generation(pool);
        for (int32_t i = 1; i < pool->threads; i++) pthread_join(pool->workers[i].thread, 0);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
    }
    for (int32_t i = 0; i < pool->threads; i++) free(pool->workers[i].scratch);
    free(pool->workers);
    free(pool);
}

void st3_pool_run(Pool* pool, const Kernels* kernels, const Step* steps, int32_t count, float* const* slots) {
    if (count < 1) return;
    pool->kernels = kernels;
    pool->steps = steps;
    pool->count = count;
    pool->slots = slots;
    if (pool->threads > 1) start_generation(pool);
    work(pool, 0);
}

double st3_pool_time(Pool* pool, const Kernels* kernels, const Step* steps, int32_t count, float* const* slots,
                     int32_t repeats) {
    double best = 1e300;
    for (int32_t i = 0; i < repeats; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        st3_pool_run(pool, kernels, steps, count, slots);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double took = (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
        if (took < best) best = took;
    }
    return best;
}
