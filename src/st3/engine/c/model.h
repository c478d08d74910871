// A plan that is a file: what lies at the offsets of an .st3run file. See st3.h for how it is read.
//
//     FileHeader, texts, FileTensor of every input, output and state, FilePlan of every instruction set,
//     and for each plan: steps, nested, structures, slots, constants; then the arrays, each at a multiple of 64 bytes
//
// All numbers are little-endian; offsets count bytes from the start of the file; texts end with a zero byte. In a
// FilePlan, and in its table of constants, offsets stand where addresses stand in memory; plans share arrays.
#ifndef ST3_MODEL_H
#define ST3_MODEL_H

#include "plan.h"
#include "st3.h"

#define FILE_MAGIC 0x0a0d4e5552335453  // "ST3RUN\r\n"
#define FILE_VERSION 1                 // to be raised when a field keeps its name but changes its meaning
#define FILE_SEALED 32                 // the checksum is of the bytes from here on: all after itself
#define FILE_ALIGNMENT 64
#define FILE_NUMBERS(X) X(FILE_MAGIC) X(FILE_VERSION) X(FILE_SEALED) X(FILE_ALIGNMENT)

// The first five fields and `writer` keep their places in all versions.
//   size        of the file, in bytes
//   checksum    CRC-64/XZ
//   schema      CRC-64/XZ of the text of st3_schema()
//   writer      text: the version that wrote the file
#define FIELDS_FileHeader(S, P, L, I, U, F, N) \
    L(S, magic) L(S, version) L(S, size) L(S, checksum) L(S, schema) L(S, writer) \
    L(S, tensors) L(S, plans) I(S, inputs) I(S, outputs) I(S, states) I(S, plan_count)

// name: text; shape: `dims` int64_t; contents: of a state when a session starts, 0: all zero; type: as in st3.h
#define FIELDS_FileTensor(S, P, L, I, U, F, N) L(S, name) L(S, shape) L(S, contents) I(S, dims) I(S, type)

// isa: text; variants: CRC-64/XZ of the table of tile sizes, whose numbers the plan refers to
#define FIELDS_FilePlan(S, P, L, I, U, F, N) L(S, isa) L(S, variants) N(S, Plan, plan)

#define RECORDS(D) D(FileHeader) D(FileTensor) D(FilePlan)
RECORDS(DECLARE)

PUBLIC uint64_t st3_checksum(const void* bytes, int64_t size);  // CRC-64/XZ

// For tests: what a model runs.
PUBLIC const Plan* st3_model_plan(const st3_model* model);
PUBLIC const Kernels* st3_model_kernels(const st3_model* model);

#endif
