/* What the files of this SDK share among themselves. Controllers include trellis/controller.h alone. */
#ifndef TRELLIS_INTERNAL_H
#define TRELLIS_INTERNAL_H

#include "trellis/controller.h"

#include <stdarg.h>

/* A value's place in its text. A string's is without the quotes; an object's tokens are name, value, name, value… */
struct json_token {
  uint8_t type;    /* json_type */
  uint8_t escaped; /* a string with backslashes */
  uint32_t start, end;
  uint32_t after; /* the first token that is not inside this one */
};

struct json_document {
  const char *text;
  const struct json_token *tokens;
};

unsigned json_utf8_length(const char *text, size_t left);
int json_hex(char c);
void json_append_arguments(json_text *text, const char *pattern, va_list arguments);
char *trellis_format_arguments(const char *pattern, va_list arguments);
void trellis_forget_call(void); /* frees what trellis_allocate gave */
_Noreturn void trellis_die(const char *why);

#endif
