/* JSON for controllers: values that are read where they stand, and text made from templates.
 *
 * In: JSON text. Out: values (`json`, small, passed by value) that point into it, and new text. Called by controllers
 * and by the rest of this SDK. Everything made here lives until the next call of the controller begins: keep what has to
 * last longer with `trellis_keep`. A value that is not there is a value too: `json_get` of nothing is nothing.
 */
#ifndef TRELLIS_JSON_H
#define TRELLIS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum json_type {
  JSON_NONE, /* there is no such value */
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT,
} json_type;

/* One value of a document. All bytes zero: no value. */
typedef struct json {
  const struct json_document *document;
  uint32_t token;
} json;

/* Read a text (RFC 8259, UTF-8, at most 200 levels). No value if it is not JSON: *problem then says why, if asked. */
json json_parse(const char *text, size_t length, const char **problem);

json_type json_type_of(json value);

/* A member of an object; of two with one name the last. No value if there is none, or `object` is no object. */
json json_get(json object, const char *name);

/* json_find(object, "metadata", "name"): json_get of json_get. */
#define json_find(object, ...) json_find_names((object), __VA_ARGS__, (const char *)NULL)
json json_find_names(json object, ...) __attribute__((sentinel));

/* for (json item = json_first(list); json_exists(item); item = json_next(list, item)): the items of an array, or the
 * values of an object's members, whose names json_name(item) gives. */
json json_first(json container);
json json_next(json container, json item);
const char *json_name(json item);
uint32_t json_count(json container);

static inline bool json_exists(json value) { return value.document != NULL; }

/* A string, decoded, with a zero behind it; NULL if the value is no string. A lone surrogate becomes U+FFFD.
 * *length, if asked, is its length in bytes, which counts on where the string has a zero of its own. */
const char *json_string(json value);
const char *json_string_with_length(json value, size_t *length);

/* A whole number; false if the value is none, or does not fit. 1.0 and 1e3 are not whole as text: false. */
bool json_integer(json value, int64_t *number);
bool json_double(json value, double *number);
bool json_is_true(json value);

/* Equal as JSON: members in any order, strings as decoded, numbers by their text. */
bool json_equal(json left, json right);

/* Text that grows. All bytes zero: empty. */
typedef struct json_text {
  char *text; /* with a zero behind it; NULL while empty */
  size_t length;
  size_t room;
} json_text;

/* Append a template: its text, in which ' becomes ", and
 *   %s  a string, quoted and escaped (NULL: null), as a value or as a name
 *   %d %lld  a number        %p  a value, from a `const json *` (no value: null)        %%  %
 * Strings can so never become structure. The template is the program's own text, and the compiler checks it. */
void json_append(json_text *text, const char *pattern, ...) __attribute__((format(printf, 2, 3)));

/* A value made from a template. What is no JSON is a mistake in the template: it is logged, and the controller traps. */
json json_make(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

/* The text of a value as it stands in its document; no zero behind it. */
const char *json_source(json value, size_t *length);

#ifdef __cplusplus
}
#endif
#endif
