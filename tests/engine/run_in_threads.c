// Runs one model in several threads at once, each with a session of its own: run_in_threads FILE THREADS CALLS
//
// Every thread has another input. Exits with 1 if an answer differs from that of the same input alone.
#include <pthread.h>
#include <st3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const st3_model* model;
    int number, calls, wrong;
    pthread_t thread;
} Job;

static void fail(const char* error) {
    fprintf(stderr, "%s\n", error);
    exit(2);
}

static float* answer(const Job* job, st3_session* session, float* in, float* out, int64_t count) {
    char error[ST3_ERROR];
    for (int64_t k = 0; k < count; k++) in[k] = (float)((k * 31 + job->number * 17) % 101) / 50 - 1;
    if (st3_run(session, (const void* const[]){in}, (float* const[]){out}, error)) fail(error);
    return out;
}

static void* work(void* argument) {
    Job* job = argument;
    char error[ST3_ERROR];
    int32_t one;
    const int64_t ins = st3_inputs(job->model, &one)->count, outs = st3_outputs(job->model, &one)->count;
    float *in = malloc(ins * 4), *wanted = malloc(outs * 4), *out = malloc(outs * 4);
    st3_session* session = st3_start(job->model, 1 + job->number % 2, error);
    if (!session) fail(error);
    answer(job, session, in, wanted, ins);
    for (int i = 0; i < job->calls; i++) {
        st3_session* another = i % 8 ? session : st3_start(job->model, 1, error);
        memset(out, 255, outs * 4);
        job->wrong += memcmp(answer(job, another, in, out, ins), wanted, outs * 4) != 0;
        if (another != session) st3_stop(another);
    }
    st3_stop(session);
    free(in), free(wanted), free(out);
    return 0;
}

int main(int count, char** arguments) {
    char error[ST3_ERROR];
    if (count != 4) return 2;
    st3_model* model = st3_open(arguments[1], NULL, error);
    if (!model) fail(error);
    const int threads = atoi(arguments[2]);
    int wrong = 0;
    Job* jobs = calloc(threads, sizeof(Job));
    for (int i = 0; i < threads; i++) {
        jobs[i] = (Job){model, i, atoi(arguments[3]), 0, 0};
        pthread_create(&jobs[i].thread, 0, work, jobs + i);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(jobs[i].thread, 0);
        wrong += jobs[i].wrong;
    }
    free(jobs);
    st3_close(model);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
