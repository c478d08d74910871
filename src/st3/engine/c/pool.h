// A thread pool that runs the steps of a plan one after another and sleeps between plans.
#ifndef ST3_POOL_H
#define ST3_POOL_H

#include "plan.h"

typedef struct Pool Pool;

PUBLIC void* st3_allocate(int64_t bytes);  // zeroed, in huge pages where possible; or NULL
PUBLIC void st3_release(void* block);

PUBLIC Pool* st3_pool_new(int32_t threads, int64_t scratch_floats);  // NULL: out of memory or threads
PUBLIC void st3_pool_free(Pool* pool);
PUBLIC void st3_pool_run(Pool* pool, const Kernels* kernels, const Step* steps, int32_t count, float* const* slots);
// Returns the shortest of `repeats` runs, in nanoseconds.
PUBLIC double st3_pool_time(Pool* pool, const Kernels* kernels, const Step* steps, int32_t count, float* const* slots,
                            int32_t repeats);

#endif
