// For each kind of step: the size of its structure, and the byte offsets of its pointers, which end with -1.
#ifndef ST3_SCHEMA_H
#define ST3_SCHEMA_H

#include "plan.h"

typedef struct {
    int32_t size;
    const int32_t* pointers;
} Layout;

extern const Layout st3_layouts[KINDS];

PUBLIC const char* st3_schema(void);

#endif
