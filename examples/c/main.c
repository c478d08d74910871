// Runs an .st3run file on numbers from 0 to 1 (token ids and positions: 0) and prints the largest output:
//     ./main model.st3run
#include <st3.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 16  // inputs or outputs

int main(int count, char** arguments) {
    char error[ST3_ERROR];
    if (count != 2) {
        fprintf(stderr, "usage: %s model.st3run\n", arguments[0]);
        return 2;
    }
    st3_model* model = st3_open(arguments[1], NULL, error);
    if (!model) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    int32_t input_count, output_count;
    const st3_tensor* inputs = st3_inputs(model, &input_count);
    const st3_tensor* outputs = st3_outputs(model, &output_count);
    if (input_count > MOST || output_count > MOST) return 1;

    void* in[MOST];
    float* out[MOST];
    for (int32_t i = 0; i < input_count; i++) {
        in[i] = calloc(inputs[i].count, inputs[i].type == ST3_INT64 ? sizeof(int64_t) : sizeof(float));
        for (int64_t k = 0; k < inputs[i].count && inputs[i].type == ST3_FLOAT32; k++) ((float*)in[i])[k] = k % 97 / 96.0f;
    }
    for (int32_t i = 0; i < output_count; i++) out[i] = malloc(outputs[i].count * sizeof(float));

    st3_session* session = st3_start(model, 0, error);
    if (!session || st3_run(session, (const void* const*)in, out, error)) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    for (int32_t i = 0; i < output_count; i++) {
        int64_t best = 0;
        for (int64_t k = 1; k < outputs[i].count; k++)
            if (out[i][k] > out[i][best]) best = k;
        printf("%s: the largest of %lld numbers is number %lld, %.6f\n", outputs[i].name, (long long)outputs[i].count,
               (long long)best, out[i][best]);
    }
    st3_stop(session);
    st3_close(model);
    for (int32_t i = 0; i < input_count; i++) free(in[i]);
    for (int32_t i = 0; i < output_count; i++) free(out[i]);
    return 0;
}
