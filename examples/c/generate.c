// Continues a text with an .st3run file that `st3 export RUN --to engine` made of a language model:
//     ./generate model.st3run "Alice was" 200 alphabet.txt
// The last argument is a file with the characters (of one byte each) in the order of their numbers; without it, a number
// is a byte. Every call of st3_run reads one character; the session keeps what it has read.
#include <st3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* sentence) {
    fprintf(stderr, "%s\n", sentence);
    return 1;
}

int main(int count, char** arguments) {
    char error[ST3_ERROR], alphabet[256];
    char* rest = "";
    int64_t more = count < 4 ? 0 : strtoll(arguments[3], &rest, 10);
    if (count < 4 || !*arguments[2] || more < 1 || *rest) {
        fprintf(stderr, "usage: %s model.st3run PROMPT LENGTH [ALPHABET]\n", arguments[0]);
        return 2;
    }
    size_t letters = 256;
    for (int i = 0; i < 256; i++) alphabet[i] = i;
    if (count > 4) {
        FILE* file = fopen(arguments[4], "rb");
        if (!file) return fail("the file of the alphabet cannot be read");
        letters = fread(alphabet, 1, sizeof alphabet, file);
        fclose(file);
    }
    st3_model* model = st3_open(arguments[1], NULL, error);
    if (!model) return fail(error);
    int32_t inputs, outputs, states;
    const st3_tensor* input = st3_inputs(model, &inputs);
    const st3_tensor* output = st3_outputs(model, &outputs);
    const st3_tensor* state = st3_states(model, &states);
    if (inputs != 2 || input[0].type != ST3_INT64 || input[0].count != 1 || input[1].type != ST3_INT64 ||
        input[1].count != 1 || outputs != 1 || !states || state[0].dims != 4)
        return fail("the file does not take a character and its position");
    if (output[0].count != (int64_t)letters) return fail("the alphabet is not that of the file");
    int64_t context = state[0].shape[2];  // of the cache: keys and values are (1, heads, context, columns)

    st3_session* session = st3_start(model, 0, error);
    if (!session) return fail(error);
    float* scores = malloc(letters * sizeof(float));
    int64_t prompt = strlen(arguments[2]);
    if (prompt >= context) return fail("the prompt leaves no room in the model's context: give a shorter one");
    // A full context ends the text here; `st3 generate` reads its last half again and goes on.
    int64_t length = more < context - prompt ? prompt + more : context;
    for (int64_t position = 0, next = 0; position < length; position++) {
        if (position < prompt) {
            char* place = memchr(alphabet, arguments[2][position], letters);
            if (!place) return fail("the prompt has a character that is not in the alphabet");
            next = place - alphabet;
        }
        putchar(alphabet[next]);
        fflush(stdout);
        const void* in[] = {&next, &position};
        if (st3_run(session, in, &scores, error)) return fail(error);
        next = 0;
        for (size_t k = 1; k < letters; k++)
            if (scores[k] > scores[next]) next = k;
    }
    putchar('\n');
    free(scores);
    st3_stop(session);
    st3_close(model);
    return 0;
}
