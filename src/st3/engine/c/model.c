// Models that are files: see st3.h for what the functions do, and plan.h for what is in a file.
#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verify.h"

#define MOST_DIMS 64
#define MOST_FLOATS (1ll << 40)  // of a tensor

struct st3_model {
    const uint8_t* bytes;
    int64_t size;
    int is_mapped;
    const FileHeader* header;
    st3_tensor* tensors;     // inputs, outputs, states
    const void** contents;   // of every state at the start, or NULL: all zero
    Constant* constants;
    Plan plan;
    const Kernels* kernels;
};

struct st3_session {
    const st3_model* model;
    Session* session;
    float** slots;
    float* states;  // one after another
};

// CRC-64/XZ, eight bytes at a time.
uint64_t st3_checksum(const void* bytes, int64_t size) {
    uint64_t table[8][256], crc = ~0ull;
    const uint8_t* from = bytes;
    for (int i = 0; i < 256; i++) {
        uint64_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xc96c5795d7870f42 : 0);
        table[0][i] = value;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
    for (; size >= 8; size -= 8, from += 8) {  // byte i of the word has 7 - i bytes after it
        uint64_t word, next = 0;
        memcpy(&word, from, 8);
        word ^= crc;
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) next ^= table[7 - i][word >> 8 * i & 255];
        crc = next;
    }
    for (; size > 0; size--) crc = crc >> 8 ^ table[0][(crc ^ *from++) & 255];
    return ~crc;
}

// ---------------------------------------------------------------- reading

static int fail(char* error, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (error) vsnprintf(error, ST3_ERROR, format, arguments);
    va_end(arguments);
    return 0;
}

// `count` elements at an offset, or NULL if they are not in the file.
static const void* at_offset(const st3_model* model, int64_t offset, int64_t count, int64_t bytes, int64_t alignment) {
    int is_there = offset >= 0 && offset <= model->size && count >= 0 && offset % alignment == 0 &&
                   count <= (model->size - offset) / bytes;
    return is_there ? model->bytes + offset : 0;
}

// A text that ends inside the file and is short enough to be quoted, or NULL.
static const char* text_at(const st3_model* model, int64_t offset) {
    const char* text = at_offset(model, offset, 1, 1, 1);
    const char* end = text ? memchr(text, 0, model->size - offset) : 0;
    if (!end || end - text > 96) return 0;
    for (const char* letter = text; letter < end; letter++)
        if ((unsigned char)*letter < ' ') return 0;
    return text;
}

static int check_header(st3_model* model, char* error) {
    const FileHeader* header = model->header = at_offset(model, 0, 1, sizeof(FileHeader), 1);
    if (model->size < 16 || memcmp(model->bytes, &(int64_t){FILE_MAGIC}, 8))
        return fail(error, "it is not an .st3run file");
    if (!header) return fail(error, "it is cut off: it has %lld bytes", (long long)model->size);
    const char* writer = text_at(model, header->writer);
    if (!writer) writer = "an unknown version of st3";
    if (header->version != FILE_VERSION)
        return fail(error, "%s wrote it in version %lld of the format, this library reads version %d: export it again",
                    writer, (long long)header->version, FILE_VERSION);
    if (header->size != model->size)
        return fail(error, "it is cut off or was appended to: it has %lld bytes and should have %lld",
                    (long long)model->size, (long long)header->size);
    if (st3_checksum(model->bytes + FILE_SEALED, model->size - FILE_SEALED) != (uint64_t)header->checksum)
        return fail(error, "it is damaged: its checksum does not match");
    const char* schema = st3_schema();
    if (st3_checksum(schema, strlen(schema)) != (uint64_t)header->schema)
        return fail(error, "%s wrote it for kernels that differ from those of this library: export it again", writer);
    return 1;
}

static int64_t floats_of(const st3_tensor* tensor) { return tensor->count * (tensor->type == ST3_INT64 ? 2 : 1); }

static int read_tensors(st3_model* model, char* error) {
    const FileHeader* header = model->header;
    const int64_t first_state = (int64_t)header->inputs + header->outputs, count = first_state + header->states;
    const FileTensor* found = at_offset(model, header->tensors, count, sizeof(FileTensor), 8);
    if (header->inputs < 1 || header->outputs < 1 || header->states < 0 || !found)
        return fail(error, "it is damaged: its table of inputs and outputs is wrong");
    model->tensors = calloc(count, sizeof(st3_tensor));
    model->contents = calloc((int64_t)header->states + 1, sizeof(void*));
    if (!model->tensors || !model->contents) return fail(error, "there is too little memory");
    for (int64_t i = 0; i < count; i++) {
        st3_tensor* tensor = model->tensors + i;
        *tensor = (st3_tensor){text_at(model, found[i].name), 0, found[i].dims, found[i].type, 1};
        if (tensor->dims >= 0 && tensor->dims <= MOST_DIMS)
            tensor->shape = at_offset(model, found[i].shape, tensor->dims, 8, 8);
        for (int32_t d = 0; tensor->shape && d < tensor->dims; d++) {
            int is_size = tensor->shape[d] >= 1 && tensor->shape[d] <= MOST_FLOATS / tensor->count;
            if (is_size) tensor->count *= tensor->shape[d];
            else tensor->shape = 0;
        }
        if (!tensor->name || !tensor->shape)
            return fail(error, "it is damaged: tensor %d has no name or no shape", (int)i);
        const int is_output = i >= header->inputs && i < first_state;
        if (tensor->type != ST3_FLOAT32 && (tensor->type != ST3_INT64 || is_output))
            return fail(error, "it is damaged: tensor %d has an unknown type", (int)i);
        if (i < first_state || !found[i].contents) continue;
        model->contents[i - first_state] = at_offset(model, found[i].contents, 4 * floats_of(tensor), 1, 8);
        if (!model->contents[i - first_state]) return fail(error, "it is damaged: state %d is not in it", (int)i);
    }
    return 1;
}

// Puts addresses in place of the offsets of a plan.
static int locate(st3_model* model, const Plan* stored) {
    Plan* plan = &model->plan;
    *plan = *stored;
    const Constant* constants = at_offset(model, (int64_t)stored->constants, plan->constant_count, sizeof(Constant), 8);
    plan->steps = at_offset(model, (int64_t)stored->steps, plan->step_count, sizeof(Step), 8);
    plan->nested = at_offset(model, (int64_t)stored->nested, plan->nested_count, sizeof(Step), 8);
    plan->structures = at_offset(model, (int64_t)stored->structures, plan->structure_bytes, 1, FILE_ALIGNMENT);
    plan->slots = at_offset(model, (int64_t)stored->slots, plan->slot_count, 8, 8);
    if (!constants || !plan->steps || !plan->nested || !plan->structures || !plan->slots) return 0;
    if (!(model->constants = calloc((int64_t)plan->constant_count + 1, sizeof(Constant)))) return 0;
    for (int32_t i = 0; i < plan->constant_count; i++) {
        const int64_t offset = (int64_t)constants[i].address, bytes = constants[i].bytes;
        model->constants[i] = (Constant){at_offset(model, offset, bytes, 1, FILE_ALIGNMENT), bytes};
        if (!model->constants[i].address) return 0;
    }
    plan->constants = model->constants;
    return 1;
}

// The caller's tensors are those of the table, and a batch divides into the plan's parts.
static int fits_tensors(const st3_model* model) {
    const Plan* plan = &model->plan;
    const FileHeader* header = model->header;
    if (plan->slot_count != (int64_t)header->inputs + header->outputs + header->states) return 0;
    for (int32_t i = 0; i < plan->slot_count; i++)
        if (plan->slots[i] < 0 || (__int128)plan->slots[i] * plan->parts != floats_of(model->tensors + i)) return 0;
    return 1;
}

static int choose_plan(st3_model* model, const char* isa, char* error) {
    const FileHeader* header = model->header;
    const FilePlan* plans = at_offset(model, header->plans, header->plan_count, sizeof(FilePlan), 8);
    if (!plans) return fail(error, "it is damaged: its table of plans is wrong");
    char names[128] = "";
    for (int32_t i = 0; i < header->plan_count; i++) {
        const char* name = text_at(model, plans[i].isa);
        if (!name) return fail(error, "it is damaged: plan %d has no name", i);
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
        const Kernels* kernels = isa && strcmp(isa, name) ? 0 : st3_kernels(name);
        if (!kernels) continue;
        if ((uint64_t)plans[i].variants != st3_checksum(kernels->variants, 20ll * kernels->variant_count)) continue;
        char fault[ST3_ERROR];
        model->kernels = kernels;
        if (!locate(model, &plans[i].plan) || !fits_tensors(model))
            return fail(error, "it is damaged: its plan for %s does not fit the file", name);
        if (st3_verify(&model->plan, kernels, header->inputs, header->outputs, fault))
            return fail(error, "it is damaged: %s", fault);
        return 1;
    }
    const char* writer = text_at(model, header->writer);
    return fail(error, "%s made it for %s: this processor and this library cannot run %s%s", writer ? writer : "st3",
                names, isa ? "a plan for " : "any of these; export it again", isa ? isa : "");
}

// ---------------------------------------------------------------- models

static st3_model* open_bytes(const void* bytes, int64_t size, int is_mapped, const char* isa, char* error) {
    st3_model* model = calloc(1, sizeof(st3_model));
    if (!model) {
        if (is_mapped) munmap((void*)bytes, size);
        fail(error, "there is too little memory");
        return 0;
    }
    *model = (st3_model){.bytes = bytes, .size = size, .is_mapped = is_mapped};
    if (check_header(model, error) && read_tensors(model, error) && choose_plan(model, isa, error)) return model;
    st3_close(model);
    return 0;
}

st3_model* st3_open_memory(const void* bytes, int64_t size, const char* isa, char* error) {
    if ((uintptr_t)bytes % FILE_ALIGNMENT == 0 && size >= 0) return open_bytes(bytes, size, 0, isa, error);
    fail(error, "the memory of an .st3run file must start at a multiple of %d", FILE_ALIGNMENT);
    return 0;
}

st3_model* st3_open(const char* path, const char* isa, char* error) {
    char fault[ST3_ERROR];
    struct stat status = {0};
    const char* reason = 0;
    void* bytes = MAP_FAILED;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status)) reason = strerror(errno);
    else if (!S_ISREG(status.st_mode)) reason = "it is not a file";
    else if (!status.st_size) reason = "it is empty";
    else if ((bytes = mmap(0, status.st_size, PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED) reason = strerror(errno);
    if (file >= 0) close(file);
    if (reason) {
        fail(error, "cannot open %.200s: %s", path, reason);
        return 0;
    }
    st3_model* model = open_bytes(bytes, status.st_size, 1, isa, fault);
    if (!model) fail(error, "cannot use %.200s: %.300s", path, fault);
    return model;
}

void st3_close(st3_model* model) {
    if (!model) return;
    if (model->is_mapped) munmap((void*)model->bytes, model->size);
    free(model->tensors);
    free(model->contents);
    free(model->constants);
    free(model);
}

const st3_tensor* st3_inputs(const st3_model* model, int32_t* count) {
    *count = model->header->inputs;
    return model->tensors;
}

const st3_tensor* st3_outputs(const st3_model* model, int32_t* count) {
    *count = model->header->outputs;
    return model->tensors + model->header->inputs;
}

const st3_tensor* st3_states(const st3_model* model, int32_t* count) {
    *count = model->header->states;
    return model->tensors + model->header->inputs + model->header->outputs;
}

const char* st3_isa(const st3_model* model) { return model->kernels->name; }
int32_t st3_threads(const st3_model* model) { return model->plan.threads; }
const Plan* st3_model_plan(const st3_model* model) { return &model->plan; }
const Kernels* st3_model_kernels(const st3_model* model) { return model->kernels; }

// ---------------------------------------------------------------- sessions

static int64_t rounded(int64_t floats) { return (floats + 15) / 16 * 16; }  // to whole cache lines

st3_session* st3_start(const st3_model* model, int32_t threads, char* error) {
    if (threads < 0 || threads > ST3_MOST_THREADS) {
        fail(error, "the number of threads must be from 1 to %d, or 0 for that of the file; got %d", ST3_MOST_THREADS,
             threads);
        return 0;
    }
    Plan plan = model->plan;
    if (threads) plan.threads = threads;
    st3_session* session = calloc(1, sizeof(st3_session));
    const int32_t first = model->header->inputs + model->header->outputs;
    int64_t floats = 0;
    for (int32_t i = first; i < plan.slot_count; i++) floats += rounded(plan.slots[i]);
    if (session) {
        session->model = model;
        session->session = st3_session_new(model->kernels, &plan);
        session->slots = calloc(plan.slot_count, sizeof(float*));
        session->states = st3_allocate(floats * 4);
    }
    if (session && session->session && session->slots && session->states) {
        float* next = session->states;
        for (int32_t i = first; i < plan.slot_count; next += rounded(plan.slots[i++])) session->slots[i] = next;
        st3_reset(session);
        return session;
    }
    fail(error, "could not start %d threads with %lld bytes of scratch each and %lld bytes for values", plan.threads,
         4 * (long long)plan.scratch, 4 * (long long)plan.arena);
    st3_stop(session);
    return 0;
}

int32_t st3_run(st3_session* session, const void* const* inputs, float* const* outputs, char* error) {
    const FileHeader* header = session->model->header;
    for (int32_t i = 0; i < header->inputs; i++) session->slots[i] = (float*)inputs[i];
    for (int32_t i = 0; i < header->outputs; i++) session->slots[header->inputs + i] = outputs[i];
    const int32_t fault = st3_session_run(session->session, session->slots, 0, -1);
    if (!fault) return 0;
    fail(error, fault == BAD_NUMBER ? "an input holds a token id or a position that is out of range"
                                    : "could not start threads in a forked process");
    return fault;
}

void* st3_state(st3_session* session, int32_t number) {
    const FileHeader* header = session->model->header;
    if (number < 0 || number >= header->states) return 0;
    return session->slots[header->inputs + header->outputs + number];
}

void st3_reset(st3_session* session) {
    const st3_model* model = session->model;
    for (int32_t i = 0; i < model->header->states; i++) {
        const int64_t bytes = 4 * model->plan.slots[model->header->inputs + model->header->outputs + i];
        if (model->contents[i]) memcpy(st3_state(session, i), model->contents[i], bytes);
        else memset(st3_state(session, i), 0, bytes);
    }
}

void st3_stop(st3_session* session) {
    if (!session) return;
    st3_session_free(session->session);
    st3_release(session->states);
    free(session->slots);
    free(session);
}
