// The structures of a plan as text, and which of their fields are pointers.
#include "schema.h"

#include <stddef.h>

#include "model.h"

#define TEXT_P(S, type, name) "p " #name ","
#define TEXT_L(S, name) "l " #name ","
#define TEXT_I(S, name) "i " #name ","
#define TEXT_U(S, name) "u " #name ","
#define TEXT_F(S, name) "f " #name ","
#define TEXT_N(S, type, name) #type " " #name ","
#define TEXT(S) #S ":" FIELDS_##S(S, TEXT_P, TEXT_L, TEXT_I, TEXT_U, TEXT_F, TEXT_N) "\n"
#define TEXT_KIND(kind, S) #S ","
#define TEXT_FUNCTION(kind, name) #name ","

#define TEXT_VALUE_(value) #value
#define TEXT_VALUE(value) TEXT_VALUE_(value)
#define TEXT_NUMBER(name) #name "=" TEXT_VALUE(name) ","

// One line per structure, "name:type field,...", then the kinds of steps and the activations in the order of their
// numbers, and the numbers that Python needs.
PUBLIC const char* st3_schema(void) {
    return ELEMENTS(TEXT) ARGUMENTS(TEXT) RECORDS(TEXT) "kinds:" KINDS_OF(TEXT_KIND)
        "\nfunctions:" FUNCTIONS(TEXT_FUNCTION) "\nnumbers:" NUMBERS(TEXT_NUMBER) FILE_NUMBERS(TEXT_NUMBER) "\n";
}

#define POINTER_P(S, type, name) offsetof(S, name),
#define POINTER_N(S, type, name) offsetof(S, name) + offsetof(Epilogue, residual), offsetof(S, name) + offsetof(Epilogue, mask),
#define NONE(...)
#define POINTERS(kind, S) \
    static const int32_t pointers_of_##S[] = {FIELDS_##S(S, POINTER_P, NONE, NONE, NONE, NONE, POINTER_N) -1};
KINDS_OF(POINTERS)

#define LAYOUT(kind, S) {sizeof(S), pointers_of_##S},
const Layout st3_layouts[KINDS] = {KINDS_OF(LAYOUT)};
