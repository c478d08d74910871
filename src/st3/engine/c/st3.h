// Run a network that `fast.save("model.st3run")` or `st3 export --to engine` has written, without Python.
//
//     char error[ST3_ERROR];
//     st3_model* model = st3_open("model.st3run", NULL, error);
//     st3_session* session = model ? st3_start(model, 0, error) : NULL;
//     if (!session || st3_run(session, inputs, outputs, error)) fprintf(stderr, "%s\n", error);
//     st3_stop(session);
//     st3_close(model);
//
// A model is never changed after it was opened: any number of threads may share it. A session belongs to one call at a
// time: give each thread its own. All tensors are contiguous, in row-major order.
//
// Some models have states, such as the keys and values of the tokens that a language model has read: every call of
// st3_run changes those of its session, and st3_reset brings them back.
//
// Functions that can fail take `error`: a buffer of ST3_ERROR bytes, or NULL. A failure writes one sentence to it.
#ifndef ST3_H
#define ST3_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ST3_API __attribute__((visibility("default")))
#define ST3_ERROR 512  // bytes of a buffer for a sentence
#define ST3_MOST_THREADS 1024

typedef struct st3_model st3_model;
typedef struct st3_session st3_session;

enum { ST3_FLOAT32, ST3_INT64 };

// An input, an output or a state. It belongs to the model.
typedef struct {
    const char* name;
    const int64_t* shape;
    int32_t dims;
    int32_t type;   // ST3_FLOAT32, or ST3_INT64 (an input or a state only)
    int64_t count;  // elements in all: the product of the shape
} st3_tensor;

// Opens a file and checks all of it: a damaged file is refused, whatever it contains. The weights are read in place, so
// the file must not be changed while the model is open; it may be deleted or replaced by another file.
//   isa   the instruction set to use ("avx512", "avx2", "baseline"), or NULL: the first one in the file, which has them
//         in the order of preference, that this processor supports
// Returns NULL on failure.
ST3_API st3_model* st3_open(const char* path, const char* isa, char* error);

// Opens a file that is in memory, at an address that is a multiple of 64. It must stay there unchanged until st3_close.
ST3_API st3_model* st3_open_memory(const void* bytes, int64_t size, const char* isa, char* error);

// Closes a model, after all of its sessions were stopped. NULL is allowed.
ST3_API void st3_close(st3_model* model);

// The inputs and the outputs, in the order of st3_run.
ST3_API const st3_tensor* st3_inputs(const st3_model* model, int32_t* count);
ST3_API const st3_tensor* st3_outputs(const st3_model* model, int32_t* count);
ST3_API const st3_tensor* st3_states(const st3_model* model, int32_t* count);

// The instruction set in use, and the number of threads for which the file was made.
ST3_API const char* st3_isa(const st3_model* model);
ST3_API int32_t st3_threads(const st3_model* model);

// Makes a session: its memory, and its threads, which sleep between calls.
//   threads   1 to ST3_MOST_THREADS, the caller's own included; 0: as many as the file was made for
// Returns NULL on failure.
ST3_API st3_session* st3_start(const st3_model* model, int32_t threads, char* error);

// Computes the outputs; nothing is allocated. inputs[i] and outputs[i] point to as many elements as the tensor has; their
// addresses are multiples of an element's size, and outputs overlap neither each other nor an input.
// Returns 0; 1 if an input holds a token id or a position that is out of range; -1 if a forked process cannot start
// threads of its own. Outputs are then undefined. The steps after the one that found it are not run, so that a model
// which looks its tokens and positions up first, as language models do, has the states that it had before.
ST3_API int32_t st3_run(st3_session* session, const void* const* inputs, float* const* outputs, char* error);

// The contents of state number `number`, to be read or written between calls; NULL if there is none.
ST3_API void* st3_state(st3_session* session, int32_t number);

// Gives all states the contents that they had when the session was started.
ST3_API void st3_reset(st3_session* session);

// Stops a session. NULL is allowed.
ST3_API void st3_stop(st3_session* session);

#ifdef __cplusplus
}
#endif

#endif
