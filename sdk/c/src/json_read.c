/* Reads JSON into a flat array of tokens. In: text. Out: a document in the memory of this call. Called by json_parse.
 * Invariant: what is accepted is RFC 8259 in valid UTF-8, so that what is copied from one document to another is, too. */
#include "internal.h"

#include <string.h>

enum { DEEPEST = 200 };

typedef struct reader {
  const char *text;
  uint32_t length, at;
  struct json_token *tokens;
  uint32_t count;
  int depth;
  const char *problem;
} reader;

static bool read_value(reader *r);

static bool refuse(reader *r, const char *problem) {
  if (r->problem == NULL) r->problem = problem;
  return false;
}

static int peek(const reader *r) { return r->at < r->length ? (unsigned char)r->text[r->at] : -1; }

static void skip_space(reader *r) {
  while (peek(r) == ' ' || peek(r) == '\n' || peek(r) == '\r' || peek(r) == '\t') r->at++;
}

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

static struct json_token *begin(reader *r, json_type type) {
  struct json_token *token = &r->tokens[r->count++];
  token->type = (uint8_t)type;
  token->start = r->at;
  return token;
}

static void end(reader *r, struct json_token *token) {
  token->end = r->at;
  token->after = r->count;
}

/* Bytes of the character that begins here; 0 if it is not UTF-8. */
unsigned json_utf8_length(const char *text, size_t left) {
  const unsigned char *c = (const unsigned char *)text;
  if (c[0] < 0x80) return 1;
  unsigned length = c[0] >= 0xF0 ? 4 : c[0] >= 0xE0 ? 3 : 2;
  if (c[0] < 0xC2 || c[0] > 0xF4 || left < length) return 0;
  for (unsigned i = 1; i < length; i++)
    if ((c[i] & 0xC0) != 0x80) return 0;
  if (c[0] == 0xE0 && c[1] < 0xA0) return 0; /* too long a form */
  if (c[0] == 0xED && c[1] > 0x9F) return 0; /* half of a surrogate pair */
  if (c[0] == 0xF0 && c[1] < 0x90) return 0;
  if (c[0] == 0xF4 && c[1] > 0x8F) return 0;
  return length;
}

int json_hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool skip_escape(reader *r) {
  r->at++;
  int c = peek(r);
  if (c == 'u') {
    for (int i = 1; i <= 4; i++)
      if (r->at + i >= r->length || json_hex(r->text[r->at + i]) < 0) return refuse(r, "\\u wants four hex digits");
    r->at += 5;
    return true;
  }
  if (c < 0 || strchr("\"\\/bfnrt", c) == NULL || c == 0) return refuse(r, "unknown escape in a string");
  r->at++;
  return true;
}

/* The token's text is what stands between the quotes. */
static bool read_string(reader *r) {
  r->at++;
  struct json_token *token = begin(r, JSON_STRING);
  while (peek(r) != '"') {
    int c = peek(r);
    if (c < 0) return refuse(r, "a string does not end");
    if (c < 0x20) return refuse(r, "a control character in a string");
    if (c == '\\') {
      token->escaped = 1;
      if (!skip_escape(r)) return false;
      continue;
    }
    unsigned length = json_utf8_length(r->text + r->at, r->length - r->at);
    if (length == 0) return refuse(r, "not UTF-8");
    r->at += length;
  }
  end(r, token);
  r->at++;
  return true;
}

static bool skip_digits(reader *r) {
  if (!is_digit(peek(r))) return refuse(r, "a number wants a digit");
  while (is_digit(peek(r))) r->at++;
  return true;
}

static bool read_number(reader *r) {
  struct json_token *token = begin(r, JSON_NUMBER);
  if (peek(r) == '-') r->at++;
  if (peek(r) == '0')
    r->at++;
  else if (!skip_digits(r))
    return false;
  if (peek(r) == '.') {
    r->at++;
    if (!skip_digits(r)) return false;
  }
  if (peek(r) == 'e' || peek(r) == 'E') {
    r->at++;
    if (peek(r) == '+' || peek(r) == '-') r->at++;
    if (!skip_digits(r)) return false;
  }
  end(r, token);
  return true;
}

static bool read_word(reader *r, const char *word, json_type type) {
  size_t length = strlen(word);
  if (r->length - r->at < length || memcmp(r->text + r->at, word, length) != 0) return refuse(r, "not a value");
  struct json_token *token = begin(r, type);
  r->at += length;
  end(r, token);
  return true;
}

static bool read_name(reader *r) {
  skip_space(r);
  if (peek(r) != '"') return refuse(r, "a member wants a name in quotes");
  if (!read_string(r)) return false;
  skip_space(r);
  if (peek(r) != ':') return refuse(r, "a name wants a colon");
  r->at++;
  return true;
}

static bool read_container(reader *r, json_type type, char last) {
  if (++r->depth > DEEPEST) return refuse(r, "too many levels");
  struct json_token *token = begin(r, type);
  r->at++;
  skip_space(r);
  if (peek(r) != last) {
    for (;;) {
      if (type == JSON_OBJECT && !read_name(r)) return false;
      if (!read_value(r)) return false;
      skip_space(r);
      if (peek(r) == last) break;
      if (peek(r) != ',') return refuse(r, "a comma is missing, or the end");
      r->at++;
    }
  }
  r->at++;
  r->depth--;
  end(r, token);
  return true;
}

static bool read_value(reader *r) {
  skip_space(r);
  switch (peek(r)) {
    case '{': return read_container(r, JSON_OBJECT, '}');
    case '[': return read_container(r, JSON_ARRAY, ']');
    case '"': return read_string(r);
    case 't': return read_word(r, "true", JSON_TRUE);
    case 'f': return read_word(r, "false", JSON_FALSE);
    case 'n': return read_word(r, "null", JSON_NULL);
    default: return read_number(r);
  }
}

/* No more tokens than this: each but the first has one of [ { , : before it. Those in strings do not count. */
static size_t most_tokens(const char *text, size_t length) {
  size_t most = 1;
  bool inside = false;
  for (size_t i = 0; i < length; i++) {
    if (inside && text[i] == '\\')
      i++;
    else if (text[i] == '"')
      inside = !inside;
    else if (!inside && (text[i] == '[' || text[i] == '{' || text[i] == ',' || text[i] == ':'))
      most++;
  }
  return most + 1; /* one that is refused */
}

json json_parse(const char *text, size_t length, const char **problem) {
  size_t most = most_tokens(text, length);
  reader r = {.text = text, .length = (uint32_t)length};
  r.tokens = trellis_allocate(most * sizeof *r.tokens);
  bool read = read_value(&r);
  skip_space(&r);
  if (read && r.at != r.length) read = refuse(&r, "something follows the value");
  if (problem != NULL) *problem = read ? NULL : r.problem;
  if (!read) return (json){0};
  struct json_document *document = trellis_allocate(sizeof *document);
  document->text = text;
  document->tokens = r.tokens;
  return (json){.document = document};
}
