// Damages .st3run files at random, opens them, and runs those that open: fuzz_plan ISA COUNT SEED FILE...
//
// Every second file has its size and checksum repaired, so that the verifier alone stands between the damage and the
// kernels. Arrays are copied to blocks of their exact sizes, so that a sanitizer sees reads beyond their ends.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

#ifdef ONLY_BASELINE  // a build with one instruction set
const Kernels st3_kernels_avx2, st3_kernels_avx512;
#endif

#define MOST_FLOATS (1 << 24)  // of memory that a run may take

typedef struct {
    uint8_t* bytes;
    int64_t size, arrays;         // where the arrays start
    int64_t *starts, *lengths;    // of the arrays
    int32_t count;
} Sample;

static uint64_t state;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int64_t below(int64_t end) { return draw() % (end > 0 ? end : 1); }

static void* block(int64_t size) {
    void* made = 0;
    if (posix_memalign(&made, 64, size > 0 ? size : 1)) abort();
    return made;
}

static Sample read_sample(const char* path, const char* isa) {
    char error[ST3_ERROR];
    FILE* file = fopen(path, "rb");
    if (!file) exit(2);
    fseek(file, 0, SEEK_END);
    Sample made = {.size = ftell(file)};
    rewind(file);
    made.bytes = block(made.size);
    if ((int64_t)fread(made.bytes, 1, made.size, file) != made.size) exit(2);
    fclose(file);
    st3_model* model = st3_open_memory(made.bytes, made.size, isa, error);
    if (!model) {
        fprintf(stderr, "%s: %s\n", path, error);
        exit(2);
    }
    const Plan* plan = st3_model_plan(model);
    made.count = plan->constant_count;
    made.arrays = made.size;
    made.starts = calloc(made.count + 1, 8);
    made.lengths = calloc(made.count + 1, 8);
    for (int32_t i = 0; i < made.count; i++) {
        made.starts[i] = (const uint8_t*)plan->constants[i].address - made.bytes;
        made.lengths[i] = plan->constants[i].bytes;
        if (made.starts[i] < made.arrays) made.arrays = made.starts[i];
    }
    st3_close(model);
    return made;
}

static int64_t some_place(const Sample* sample) {
    if (draw() % 2 || !sample->count) return below(sample->arrays);
    int32_t array = below(sample->count);
    return sample->starts[array] + below(sample->lengths[array]);
}

static int64_t some_number(int64_t old) {
    static const int64_t odd[] = {0,  1,   -1,  2,    3,     4,         7,         16,       64,
                                  255, 256, 4096, 65536, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    switch (draw() % 5) {
        case 0: return odd[draw() % (sizeof odd / sizeof *odd)];
        case 1: return (int64_t)((uint64_t)old + 1 + below(16));
        case 2: return (int64_t)((uint64_t)old - 1 - below(16));
        case 3: return old ^ (int64_t)(1ull << below(64));
        default: return draw();
    }
}

static void damage(const Sample* sample, uint8_t* bytes) {
    const int width = 1 << below(4), apart = draw() % 4 ? 8 : 1;
    int64_t at = some_place(sample) & -width, other = at + apart * width, old = 0;
    if (draw() % 2) other = some_place(sample) & -width;
    if (at + width > sample->size || other + width > sample->size) return;
    memcpy(&old, bytes + at, width);
    int64_t made = some_number(old);
    if (draw() % 4 == 0) {  // swap two fields
        memcpy(bytes + at, bytes + other, width);
        made = old, at = other;
    }
    memcpy(bytes + at, &made, width);
}

// Makes the memory of a plan smaller: all that its steps touch must still be inside.
static void shrink(uint8_t* bytes) {
    FilePlan* file = (FilePlan*)(bytes + ((const FileHeader*)bytes)->plans);
    int64_t* size = draw() % 2 ? &file->plan.scratch : &file->plan.arena;
    *size = draw() % 2 ? below(*size) : *size - below(128);
}

// Runs a model's plan on arrays of exact sizes.
static int run(const st3_model* model) {
    Plan plan = *st3_model_plan(model);
    int64_t floats = plan.arena + plan.scratch;
    for (int32_t i = 0; i < plan.slot_count; i++) floats += plan.slots[i] * plan.parts;
    if (floats > MOST_FLOATS) return 0;
    if (plan.threads > 2) plan.threads = 2;
    Constant* constants = calloc(plan.constant_count + 1, sizeof(Constant));
    for (int32_t i = 0; i < plan.constant_count; i++) {
        constants[i] = (Constant){block(plan.constants[i].bytes), plan.constants[i].bytes};
        memcpy((void*)constants[i].address, plan.constants[i].address, constants[i].bytes);
    }
    plan.constants = constants;
    float** slots = calloc(plan.slot_count + 1, sizeof(float*));
    for (int32_t i = 0; i < plan.slot_count; i++) {
        slots[i] = block(plan.slots[i] * plan.parts * 4);
        memset(slots[i], 0, plan.slots[i] * plan.parts * 4);
    }
    alarm(60);  // a run that never ends is a failure, too
    Session* session = st3_session_new(st3_model_kernels(model), &plan);
    if (session) st3_session_run(session, slots, 0, -1);
    st3_session_free(session);
    alarm(0);
    for (int32_t i = 0; i < plan.constant_count; i++) free((void*)constants[i].address);
    for (int32_t i = 0; i < plan.slot_count; i++) free(slots[i]);
    free(constants);
    free(slots);
    return session != 0;
}

static void repair(uint8_t* bytes, int64_t size) {
    FileHeader* header = (FileHeader*)bytes;
    if (size < (int64_t)sizeof(FileHeader)) return;
    header->magic = FILE_MAGIC;
    header->version = FILE_VERSION;
    header->size = size;
    header->checksum = st3_checksum(bytes + FILE_SEALED, size - FILE_SEALED);
}

int main(int count, char** arguments) {
    if (count < 5) return 2;
    const char* isa = arguments[1];
    const int64_t wanted = atoll(arguments[2]), files = count - 4;
    state = atoll(arguments[3]) * 2654435761u + 88172645463325252ull;
    static Sample* samples;  // kept to the end
    samples = calloc(files, sizeof(Sample));
    for (int64_t i = 0; i < files; i++) samples[i] = read_sample(arguments[4 + i], isa);
    int64_t header = 0, checksum = 0, tables = 0, verifier = 0, ran = 0, too_large = 0;
    for (int64_t i = 0; i < wanted; i++) {
        const Sample* sample = samples + below(files);
        uint8_t* bytes = block(sample->size);
        memcpy(bytes, sample->bytes, sample->size);
        if (draw() % 16 == 0) shrink(bytes);
        else
            for (int64_t n = 1 + below(3); n > 0; n--) damage(sample, bytes);
        int64_t size = draw() % 10 ? sample->size : below(sample->size);
        if (i % 2) repair(bytes, size);
        uint8_t* exact = block(size);
        memcpy(exact, bytes, size);
        char error[ST3_ERROR] = "";
        st3_model* model = st3_open_memory(exact, size, isa, error);
        if (model) *(run(model) ? &ran : &too_large) += 1;
        else if (strstr(error, "checksum")) checksum++;
        else if (strstr(error, "has a wrong value")) verifier++;
        else if (strstr(error, "damaged")) tables++;
        else header++;
        st3_close(model);
        free(exact);
        free(bytes);
    }
    printf("header %lld checksum %lld tables %lld verifier %lld ran %lld too_large %lld\n", (long long)header,
           (long long)checksum, (long long)tables, (long long)verifier, (long long)ran, (long long)too_large);
    return 0;
}
