/* Makes JSON text from templates. In: a template and its values. Out: text in the memory of this call. Called by
 * controllers and by the client. Invariant: a string is always quoted and escaped, whatever it holds. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

static void put(json_text *text, const char *bytes, size_t length) {
  if (text->room < text->length + length + 1) {
    size_t room = 2 * (text->length + length) + 64;
    char *larger = trellis_allocate(room);
    if (text->length > 0) memcpy(larger, text->text, text->length);
    text->text = larger;
    text->room = room;
  }
  memcpy(text->text + text->length, bytes, length);
  text->length += length;
  text->text[text->length] = 0;
}

static void put_escaped(json_text *text, unsigned char c) {
  static const char hex[] = "0123456789abcdef";
  char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
  if (c == '"' || c == '\\') {
    escape[1] = (char)c;
    put(text, escape, 2);
  } else {
    put(text, escape, 6);
  }
}

static void put_string(json_text *text, const char *string) {
  if (string == NULL) {
    put(text, "null", 4);
    return;
  }
  size_t left = strlen(string);
  put(text, "\"", 1);
  while (left > 0) {
    size_t plain = 0;
    unsigned length = 0;
    while (plain < left) {
      unsigned char c = (unsigned char)string[plain];
      length = json_utf8_length(string + plain, left - plain);
      if (c < 0x20 || c == '"' || c == '\\' || length == 0) break;
      plain += length;
    }
    put(text, string, plain);
    if (plain == left) break;
    if (length == 0)
      put(text, "\xEF\xBF\xBD", 3); /* U+FFFD for a byte that is not UTF-8 */
    else
      put_escaped(text, (unsigned char)string[plain]);
    string += plain + 1;
    left -= plain + 1;
  }
  put(text, "\"", 1);
}

static void put_number(json_text *text, long long number) {
  char digits[24], *at = digits + sizeof digits;
  unsigned long long rest = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
  do *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (number < 0) *--at = '-';
  put(text, at, (size_t)(digits + sizeof digits - at));
}

static void put_value(json_text *text, const json *value) {
  size_t length;
  if (!json_exists(*value)) {
    put(text, "null", 4);
    return;
  }
  const char *source = json_source(*value, &length);
  put(text, source, length);
}

void json_append_arguments(json_text *text, const char *pattern, va_list arguments) {
  for (const char *p = pattern; *p != 0;) {
    size_t plain = strcspn(p, "'%");
    put(text, p, plain);
    p += plain;
    if (*p == 0) break;
    if (*p == '\'') {
      put(text, "\"", 1);
      p++;
      continue;
    }
    if (strncmp(p, "%lld", 4) == 0) {
      put_number(text, va_arg(arguments, long long));
      p += 4;
      continue;
    }
    switch (p[1]) {
      case 's': put_string(text, va_arg(arguments, const char *)); break;
      case 'd': put_number(text, va_arg(arguments, int)); break;
      case 'p': put_value(text, va_arg(arguments, const json *)); break;
      case '%': put(text, "%", 1); break;
      default: trellis_die("a template has a % that is none of %s %d %lld %p %%");
    }
    p += 2;
  }
}

void json_append(json_text *text, const char *pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  json_append_arguments(text, pattern, arguments);
  va_end(arguments);
}

json json_make(const char *pattern, ...) {
  json_text text = {0};
  va_list arguments;
  va_start(arguments, pattern);
  json_append_arguments(&text, pattern, arguments);
  va_end(arguments);
  const char *problem;
  json made = json_parse(text.text == NULL ? "" : text.text, text.length, &problem);
  if (problem != NULL) {
    trellis_log(TRELLIS_ERROR, "a template makes no JSON: %s: %s", problem, pattern);
    trellis_die("a template makes no JSON");
  }
  return made;
}
