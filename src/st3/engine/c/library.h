// What the parts of the library offer one another, Python and tests; st3.h is what it offers C programs.
#ifndef ST3_LIBRARY_H
#define ST3_LIBRARY_H

#include "plan.h"
#include "st3.h"

// ---------------------------------------------------------------- structures and kernels (library.c)

PUBLIC const char* st3_schema(void);  // all structures as text

// For each kind of step: the size of its structure, and the byte offsets of its pointers, which end with -1.
typedef struct {
    int32_t size;
    const int32_t* pointers;
} Layout;

extern const Layout st3_layouts[KINDS];

PUBLIC const Kernels* st3_kernels(const char* wanted);  // NULL: the best; returns NULL if there are none
PUBLIC const char* st3_kernels_name(const Kernels* kernels);
PUBLIC int32_t st3_kernels_lanes(const Kernels* kernels);
PUBLIC const int32_t* st3_kernels_variants(const Kernels* kernels, int32_t* count);

// ---------------------------------------------------------------- sessions (session.c)

// A session: the memory and the threads of one call at a time. Sessions of the same plan share its constants.
typedef struct Session Session;

PUBLIC void* st3_allocate(int64_t bytes);  // zeroed, in huge pages where possible; or NULL
PUBLIC void st3_release(void* block);
PUBLIC void st3_trim(void);  // gives freed memory back to the system, where the C library keeps it

// The plan and its arrays must outlive the session. Returns NULL if there is too little memory or no more threads.
PUBLIC Session* st3_session_new(const Kernels* kernels, const Plan* plan);
PUBLIC void st3_session_free(Session* session);
PUBLIC float* st3_session_arena(Session* session);
// Runs `count` steps from `first` on; all steps, for all parts of a batch, if count < 0. `slots`: the caller's tensors.
// Returns 0, or -1 if a forked process could not start threads of its own.
PUBLIC int32_t st3_session_run(Session* session, float* const* slots, int32_t first, int32_t count);
// Runs another plan in this session's memory; returns the shortest of `repeats` runs in nanoseconds, or -1.
PUBLIC double st3_session_time(Session* session, const Plan* plan, float* const* slots, int32_t repeats);

// ---------------------------------------------------------------- models (model.c)

PUBLIC uint64_t st3_checksum(const void* bytes, int64_t size);  // CRC-64/XZ

// For tests: what a model runs.
PUBLIC const Plan* st3_model_plan(const st3_model* model);
PUBLIC const Kernels* st3_model_kernels(const st3_model* model);

#endif
