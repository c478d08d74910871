#define _GNU_SOURCE
#include "library.h"

#if defined(__linux__)
#include <malloc.h>
#endif
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

// ---------------------------------------------------------------- memory

void* st3_allocate(int64_t bytes) {
    bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    void* block = aligned_alloc(BLOCK, bytes > 0 ? bytes : BLOCK);
    if (!block) return 0;
#if defined(__linux__)
    madvise(block, bytes, MADV_HUGEPAGE);  // planes lie far apart: small pages would cause TLB misses
#endif
    memset(block, 0, bytes);
    return block;
}

void st3_release(void* block) { free(block); }

void st3_trim(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

// ---------------------------------------------------------------- a plan with addresses

typedef struct {
    Run run;
    int32_t tasks;
    const void* arguments;
} BoundStep;

// The steps of a plan for one arena.
typedef struct {
    BoundStep* steps;
    uint8_t* structures;
} Bound;

static void bind_structure(uint8_t* structures, int64_t at, int32_t kind, const Plan* plan, float* arena) {
    for (const int32_t* pointer = st3_layouts[kind].pointers; *pointer >= 0; pointer++) {
        uint64_t reference;
        memcpy(&reference, structures + at + *pointer, 8);
        int64_t number = reference & ((1ull << REGION_SHIFT) - 1);
        const void* address = 0;
        switch (reference >> REGION_SHIFT) {
            case ARENA: address = (char*)arena + number; break;
            case CONSTANT: address = plan->constants[number].address; break;
            case STRUCTURE: address = structures + number; break;
        }
        memcpy(structures + at + *pointer, &address, 8);
    }
}

static void release_bound(Bound* bound) {
    free(bound->steps);
    free(bound->structures);
    *bound = (Bound){0};
}

static int bind_plan(Bound* bound, const Kernels* kernels, const Plan* plan, float* arena) {
    bound->steps = malloc((plan->step_count + 1) * sizeof(BoundStep));
    bound->structures = aligned_alloc(64, plan->structure_bytes / 64 * 64 + 64);
    if (!bound->steps || !bound->structures) {
        release_bound(bound);
        return -1;
    }
    memcpy(bound->structures, plan->structures, plan->structure_bytes);
    for (int32_t i = 0; i < plan->nested_count; i++)
        bind_structure(bound->structures, plan->nested[i].arguments, plan->nested[i].kind, plan, arena);
    for (int32_t i = 0; i < plan->step_count; i++) {
        const Step* step = plan->steps + i;
        bind_structure(bound->structures, step->arguments, step->kind, plan, arena);
        bound->steps[i] = (BoundStep){kernels->run[step->kind], step->tasks, bound->structures + step->arguments};
    }
    return 0;
}

// ---------------------------------------------------------------- threads

typedef struct {
    Session* session;
    float* scratch;
    float** slots;
    pthread_t thread;
    _Alignas(64) _Atomic int32_t next;  // the next task in this worker's range
} Worker;

struct Session {
    const Kernels* kernels;
    Plan plan;
    int32_t contexts;  // arenas: one, or one per thread if threads compute parts of a batch apart from each other
    float** arenas;
    Bound* bounds;

    pid_t process;  // the one that started the threads: a forked child has none of them
    int32_t threads, started, stopping;
    Worker* workers;  // the first is the calling thread
    const BoundStep* steps;  // what to run together; NULL: parts of a batch, apart
    int32_t count;
    float* const* slots;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int32_t sleeping;
    _Alignas(64) _Atomic uint32_t generation;  // jobs started
    _Alignas(64) _Atomic int32_t arrived;      // threads that have finished the current step
    _Alignas(64) _Atomic uint32_t step;        // steps finished since the session started
    _Alignas(64) _Atomic int32_t part;         // parts that were taken
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Every thread has a range of tasks; a thread that runs out takes tasks from the others' ranges. Where possible, steps
// number their tasks by tile: a thread then reads what it wrote itself, not what is in another core's cache.
static void take_tasks(Session* session, int32_t self, const BoundStep* step, const Context* context) {
    int32_t threads = session->threads;
    for (int32_t i = 0; i < threads; i++) {
        int32_t owner = (self + i) % threads;
        int32_t first = (int64_t)step->tasks * owner / threads, end = (int64_t)step->tasks * (owner + 1) / threads;
        int32_t chunk = (end - first) / 8, t;  // several tasks per atomic operation
        if (chunk < 1) chunk = 1;
        while ((t = first + atomic_fetch_add_explicit(&session->workers[owner].next, chunk, memory_order_relaxed)) < end)
            for (int32_t stop = t + chunk < end ? t + chunk : end; t < stop; t++) step->run(step->arguments, t, context);
    }
}

static void run_steps(const BoundStep* steps, int32_t count, const Context* context) {
    for (const BoundStep* step = steps; step < steps + count; step++)
        for (int32_t t = 0; t < step->tasks; t++) step->run(step->arguments, t, context);
}

// All threads work on every step, and wait for each other after it.
static void work_together(Session* session, int32_t self) {
    // Copied first: when the last step ends, the caller may start the next job before this thread reads the session again.
    const BoundStep* steps = session->steps;
    const int32_t count = session->count;
    Context context = {session->slots, session->workers[self].scratch};
    for (int32_t s = 0; s < count; s++) {
        uint32_t now = atomic_load_explicit(&session->step, memory_order_acquire);
        take_tasks(session, self, steps + s, &context);
        if (atomic_fetch_add_explicit(&session->arrived, 1, memory_order_acq_rel) == session->threads - 1) {
            atomic_store_explicit(&session->arrived, 0, memory_order_relaxed);
            for (int32_t i = 0; i < session->threads; i++)
                atomic_store_explicit(&session->workers[i].next, 0, memory_order_relaxed);
            atomic_store_explicit(&session->step, now + 1, memory_order_release);
        } else {
            // With more threads than free cores, let the others run after a while.
            for (int spins = 0; atomic_load_explicit(&session->step, memory_order_acquire) == now; spins++)
                if (spins < SPINS) relax();
                else sched_yield();
        }
    }
}

static void run_part(Session* session, int32_t self, const Bound* bound, int32_t part) {
    Worker* worker = session->workers + self;
    for (int32_t s = 0; s < session->plan.slot_count; s++)
        worker->slots[s] = session->slots[s] + part * session->plan.slots[s];
    Context context = {worker->slots, worker->scratch};
    run_steps(bound->steps, session->plan.step_count, &context);
}

// Every thread computes whole parts of the batch in an arena of its own. Nobody leaves before all have finished.
static void work_apart(Session* session, int32_t self) {
    int32_t part;
    while ((part = atomic_fetch_add_explicit(&session->part, 1, memory_order_relaxed)) < session->plan.parts)
        run_part(session, self, session->bounds + self, part);
    uint32_t now = atomic_load_explicit(&session->step, memory_order_acquire);
    if (atomic_fetch_add_explicit(&session->arrived, 1, memory_order_acq_rel) == session->threads - 1) {
        atomic_store_explicit(&session->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&session->step, now + 1, memory_order_release);
    } else {
        for (int spins = 0; atomic_load_explicit(&session->step, memory_order_acquire) == now; spins++)
            if (spins < SPINS) relax();
            else sched_yield();
    }
}

static void work(Session* session, int32_t self) {
    if (session->steps) work_together(session, self);
    else work_apart(session, self);
}

static void* worker_main(void* argument) {
    Worker* worker = argument;
    Session* session = worker->session;
    uint32_t seen = 0;
    for (;;) {
        for (int spins = 0; spins < SPINS && atomic_load_explicit(&session->generation, memory_order_acquire) == seen;
             spins++)
            relax();
        if (atomic_load_explicit(&session->generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&session->lock);
            session->sleeping++;
            while (atomic_load_explicit(&session->generation, memory_order_acquire) == seen)
                pthread_cond_wait(&session->wake, &session->lock);
            session->sleeping--;
            pthread_mutex_unlock(&session->lock);
        }
        seen++;
        if (session->stopping) return 0;
        work(session, worker - session->workers);
    }
}

static void start_job(Session* session) {
    pthread_mutex_lock(&session->lock);
    atomic_fetch_add_explicit(&session->generation, 1, memory_order_release);
    if (session->sleeping) pthread_cond_broadcast(&session->wake);
    pthread_mutex_unlock(&session->lock);
}

static void stop_threads(Session* session) {
    if (!session->started || session->process != getpid()) return;
    session->stopping = 1;
    start_job(session);
    for (int32_t i = 1; i < session->started; i++) pthread_join(session->workers[i].thread, 0);
    pthread_cond_destroy(&session->wake);
    pthread_mutex_destroy(&session->lock);
    session->started = session->stopping = 0;
}

static int start_threads(Session* session) {
    session->process = getpid();
    session->started = 1;
    session->sleeping = 0;
    atomic_store(&session->generation, 0);
    atomic_store(&session->arrived, 0);
    pthread_mutex_init(&session->lock, 0);
    pthread_cond_init(&session->wake, 0);
    for (int32_t i = 0; i < session->threads; i++) atomic_store(&session->workers[i].next, 0);
    for (; session->started < session->threads; session->started++) {
        Worker* worker = session->workers + session->started;
        if (pthread_create(&worker->thread, 0, worker_main, worker)) {
            stop_threads(session);
            return -1;
        }
    }
    return 0;
}

// ---------------------------------------------------------------- sessions

Session* st3_session_new(const Kernels* kernels, const Plan* plan) {
    Session* session = aligned_alloc(64, (sizeof(Session) + 63) / 64 * 64);
    if (!session) return 0;
    *session = (Session){.kernels = kernels, .plan = *plan};
    const int32_t threads = plan->threads;
    session->contexts = plan->parts > 1 && plan->parts >= threads ? threads : 1;
    session->arenas = calloc(session->contexts, sizeof(float*));
    session->bounds = calloc(session->contexts, sizeof(Bound));
    session->workers = aligned_alloc(64, threads * sizeof(Worker));
    int failed = !session->arenas || !session->bounds || !session->workers;
    if (session->workers) memset(session->workers, 0, threads * sizeof(Worker));
    for (int32_t i = 0; i < session->contexts && !failed; i++)
        failed = !(session->arenas[i] = st3_allocate(plan->arena * 4)) ||
                 bind_plan(session->bounds + i, kernels, plan, session->arenas[i]);
    for (int32_t i = 0; i < threads && !failed; i++) {
        Worker* worker = session->workers + i;
        worker->session = session;
        session->threads++;
        failed = !(worker->scratch = st3_allocate(plan->scratch * 4 + 64)) ||
                 !(worker->slots = calloc(plan->slot_count + 1, sizeof(float*)));
    }
    if (!failed && !start_threads(session)) return session;
    st3_session_free(session);
    return 0;
}

void st3_session_free(Session* session) {
    if (!session) return;
    stop_threads(session);
    for (int32_t i = 0; i < session->threads; i++) {
        st3_release(session->workers[i].scratch);
        free(session->workers[i].slots);
    }
    for (int32_t i = 0; i < session->contexts; i++) {
        if (session->bounds) release_bound(session->bounds + i);
        if (session->arenas) st3_release(session->arenas[i]);
    }
    free(session->bounds);
    free(session->arenas);
    free(session->workers);
    free(session);
}

float* st3_session_arena(Session* session) { return session->arenas[0]; }

static int run_together(Session* session, const BoundStep* steps, int32_t count, float* const* slots) {
    if (count < 1) return 0;
    if (session->threads == 1) {
        Context context = {slots, session->workers->scratch};
        run_steps(steps, count, &context);
        return 0;
    }
    if (session->process != getpid() && start_threads(session)) return -1;
    session->steps = steps;
    session->count = count;
    session->slots = slots;
    start_job(session);
    work(session, 0);
    return 0;
}

static int run_batch(Session* session, float* const* slots) {
    const Plan* plan = &session->plan;
    session->slots = slots;
    if (session->threads == 1) {
        for (int32_t part = 0; part < plan->parts; part++) run_part(session, 0, session->bounds, part);
        return 0;
    }
    if (session->contexts > 1) {
        if (session->process != getpid() && start_threads(session)) return -1;
        session->steps = 0;
        atomic_store(&session->part, 0);
        start_job(session);
        work(session, 0);
        return 0;
    }
    for (int32_t part = 0; part < plan->parts; part++) {
        float** moved = session->workers->slots;
        for (int32_t s = 0; s < plan->slot_count; s++) moved[s] = slots[s] + part * plan->slots[s];
        if (run_together(session, session->bounds->steps, plan->step_count, moved)) return -1;
    }
    return 0;
}

int32_t st3_session_run(Session* session, float* const* slots, int32_t first, int32_t count) {
    if (count < 0 && session->plan.parts > 1) return run_batch(session, slots);
    if (count < 0) count = session->plan.step_count;
    return run_together(session, session->bounds->steps + first, count, slots);
}

double st3_session_time(Session* session, const Plan* plan, float* const* slots, int32_t repeats) {
    Bound bound;
    if (bind_plan(&bound, session->kernels, plan, session->arenas[0])) return -1;
    double best = 1e300;
    for (int32_t i = 0; i < repeats; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (run_together(session, bound.steps, plan->step_count, slots)) best = -1;
        clock_gettime(CLOCK_MONOTONIC, &b);
        double took = (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec);
        if (took < best) best = took;
    }
    release_bound(&bound);
    return best;
}
