/* Looks into values that json_parse has read. In: values. Out: parts of them, strings and numbers. Called by
 * controllers. Invariant: no value in, no value out; nothing here can fail. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static const struct json_token *token_of(json value) { return &value.document->tokens[value.token]; }

static json at(json near, uint32_t token) { return (json){.document = near.document, .token = token}; }

json_type json_type_of(json value) { return json_exists(value) ? (json_type)token_of(value)->type : JSON_NONE; }

const char *json_source(json value, size_t *length) {
  const struct json_token *token = token_of(value);
  unsigned quote = token->type == JSON_STRING;
  *length = token->end - token->start + 2 * quote;
  return value.document->text + token->start - quote;
}

json json_first(json container) {
  json_type type = json_type_of(container);
  if (type != JSON_ARRAY && type != JSON_OBJECT) return (json){0};
  return json_next(container, container);
}

json json_next(json container, json item) {
  const struct json_token *all = token_of(container);
  /* The container itself stands for "before its first item". */
  uint32_t next = item.token == container.token ? item.token + 1 : token_of(item)->after;
  if (next >= all->after) return (json){0};
  return at(container, all->type == JSON_OBJECT ? next + 1 : next);
}

uint32_t json_count(json container) {
  uint32_t count = 0;
  for (json item = json_first(container); json_exists(item); item = json_next(container, item)) count++;
  return count;
}

const char *json_name(json item) { return json_string(at(item, item.token - 1)); }

static bool is_named(json item, const char *name, size_t length) {
  json label = at(item, item.token - 1);
  const struct json_token *token = token_of(label);
  if (!token->escaped) {
    return token->end - token->start == length && memcmp(item.document->text + token->start, name, length) == 0;
  }
  size_t decoded;
  const char *text = json_string_with_length(label, &decoded);
  return decoded == length && memcmp(text, name, length) == 0;
}

static json get(json object, const char *name, size_t length) {
  json found = {0};
  if (json_type_of(object) != JSON_OBJECT) return found;
  for (json item = json_first(object); json_exists(item); item = json_next(object, item))
    if (is_named(item, name, length)) found = item;
  return found;
}

json json_get(json object, const char *name) { return get(object, name, strlen(name)); }

json json_find_names(json object, ...) {
  va_list names;
  va_start(names, object);
  for (const char *name; (name = va_arg(names, const char *)) != NULL;) object = json_get(object, name);
  va_end(names);
  return object;
}

static uint32_t unit(const char *escape) {
  uint32_t value = 0;
  for (int i = 2; i < 6; i++) value = value << 4 | (uint32_t)json_hex(escape[i]);
  return value;
}

static char *put_character(char *out, uint32_t c) {
  if (c < 0x80) {
    *out++ = (char)c;
  } else if (c < 0x800) {
    *out++ = (char)(0xC0 | c >> 6);
    *out++ = (char)(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    *out++ = (char)(0xE0 | c >> 12);
    *out++ = (char)(0x80 | (c >> 6 & 0x3F));
    *out++ = (char)(0x80 | (c & 0x3F));
  } else {
    *out++ = (char)(0xF0 | c >> 18);
    *out++ = (char)(0x80 | (c >> 12 & 0x3F));
    *out++ = (char)(0x80 | (c >> 6 & 0x3F));
    *out++ = (char)(0x80 | (c & 0x3F));
  }
  return out;
}

/* Decode \uXXXX at *from, or two of them that are one character; *from is moved behind. */
static char *put_unit(char *out, const char **from, const char *end) {
  uint32_t c = unit(*from);
  *from += 6;
  if (c >= 0xD800 && c < 0xDC00 && end - *from >= 6 && (*from)[0] == '\\' && (*from)[1] == 'u') {
    uint32_t low = unit(*from);
    if (low >= 0xDC00 && low < 0xE000) {
      *from += 6;
      return put_character(out, 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00));
    }
  }
  return put_character(out, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
}

const char *json_string_with_length(json value, size_t *length) {
  if (json_type_of(value) != JSON_STRING) return NULL;
  const struct json_token *token = token_of(value);
  const char *from = value.document->text + token->start, *end = value.document->text + token->end;
  char *text = trellis_allocate((size_t)(end - from) + 1), *out = text;
  while (from < end) {
    const char *plain = memchr(from, '\\', (size_t)(end - from));
    size_t copied = (size_t)((plain ? plain : end) - from);
    memcpy(out, from, copied);
    out += copied;
    from += copied;
    if (from == end) break;
    if (from[1] == 'u') {
      out = put_unit(out, &from, end);
      continue;
    }
    static const char named[] = "b\bf\fn\nr\rt\t";
    const char *found = strchr(named, from[1]);
    *out++ = found ? found[1] : from[1];
    from += 2;
  }
  if (length != NULL) *length = (size_t)(out - text);
  return text;
}

const char *json_string(json value) { return json_string_with_length(value, NULL); }

bool json_integer(json value, int64_t *number) {
  if (json_type_of(value) != JSON_NUMBER) return false;
  size_t length;
  const char *text = json_source(value, &length);
  bool negative = text[0] == '-';
  int64_t sum = 0; /* below zero, where one more number fits than above */
  for (size_t i = negative; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
    if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_sub_overflow(sum, text[i] - '0', &sum)) return false;
  }
  if (!negative && __builtin_sub_overflow(0, sum, &sum)) return false;
  *number = sum;
  return true;
}

bool json_double(json value, double *number) {
  if (json_type_of(value) != JSON_NUMBER) return false;
  size_t length;
  const char *source = json_source(value, &length);
  char *text = trellis_allocate(length + 1); /* strtod wants a zero behind it */
  memcpy(text, source, length);
  *number = strtod(text, NULL);
  return true;
}

bool json_is_true(json value) { return json_type_of(value) == JSON_TRUE; }

static bool equal_text(json left, json right) {
  size_t left_length, right_length;
  const char *a, *b;
  if (json_type_of(left) == JSON_STRING) {
    a = json_string_with_length(left, &left_length);
    b = json_string_with_length(right, &right_length);
  } else {
    a = json_source(left, &left_length);
    b = json_source(right, &right_length);
  }
  return left_length == right_length && memcmp(a, b, left_length) == 0;
}

static bool equal_items(json left, json right) {
  json a = json_first(left), b = json_first(right);
  for (; json_exists(a) && json_exists(b); a = json_next(left, a), b = json_next(right, b))
    if (!json_equal(a, b)) return false;
  return json_exists(a) == json_exists(b);
}

/* Each member of one is a member of the other. */
static bool has_members(json object, json members) {
  for (json item = json_first(members); json_exists(item); item = json_next(members, item)) {
    size_t length;
    const char *name = json_string_with_length(at(item, item.token - 1), &length);
    /* Of two members with one name the last counts. */
    if (!json_equal(get(object, name, length), get(members, name, length))) return false;
  }
  return true;
}

bool json_equal(json left, json right) {
  json_type type = json_type_of(left);
  if (type != json_type_of(right)) return false;
  if (type == JSON_STRING || type == JSON_NUMBER) return equal_text(left, right);
  if (type == JSON_ARRAY) return equal_items(left, right);
  if (type == JSON_OBJECT) return has_members(left, right) && has_members(right, left);
  return true;
}
