/* Reads what stands in objects as text: times as Kubernetes writes them (RFC 3339), numbers of annotations, bytes in
 * base64 (RFC 4648). In: text. Out: seconds since 1970, numbers, bytes. Called by controllers. Invariant: NULL is none of
 * these. */
#include "trellis/controller.h"

#include <string.h>

static bool digits(const char **at, int count, int *number) {
  *number = 0;
  for (; count > 0; count--, (*at)++) {
    if (**at < '0' || **at > '9') return false;
    *number = *number * 10 + (**at - '0');
  }
  return true;
}

static bool literal(const char **at, const char *choices) {
  if (**at == 0 || strchr(choices, **at) == NULL) return false;
  (*at)++;
  return true;
}

/* Days since 1970 of a date in the Gregorian calendar; the year begins in March, so that the leap day is its last. */
static int64_t days(int year, int month, int day) {
  int64_t y = month <= 2 ? year - 1 : year;
  int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return y * 365 + y / 4 - y / 100 + y / 400 + of_year - 719468;
}

static bool offset(const char **at, int *seconds) {
  *seconds = 0;
  if (literal(at, "Zz")) return true;
  int sign = **at == '-' ? -1 : 1, hours, minutes;
  if (!literal(at, "+-") || !digits(at, 2, &hours) || !literal(at, ":") || !digits(at, 2, &minutes)) return false;
  *seconds = sign * (hours * 3600 + minutes * 60);
  return hours < 24 && minutes < 60;
}

bool trellis_parse_time(const char *text, int64_t *seconds) {
  int year, month, day, hour, minute, second, away;
  const char *at = text;
  if (at == NULL) return false;
  if (!digits(&at, 4, &year) || !literal(&at, "-") || !digits(&at, 2, &month) || !literal(&at, "-")) return false;
  if (!digits(&at, 2, &day) || !literal(&at, "Tt ") || !digits(&at, 2, &hour) || !literal(&at, ":")) return false;
  if (!digits(&at, 2, &minute) || !literal(&at, ":") || !digits(&at, 2, &second)) return false;
  if (literal(&at, "."))
    while (*at >= '0' && *at <= '9') at++;
  if (!offset(&at, &away) || *at != 0) return false;
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) return false;
  *seconds = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - away;
  return true;
}

bool trellis_parse_number(const char *text, int64_t *number) {
  int64_t sum = 0;
  if (text == NULL || *text == 0) return false;
  for (; *text != 0; text++) {
    if (*text < '0' || *text > '9') return false;
    if (__builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, *text - '0', &sum)) return false;
  }
  *number = sum;
  return true;
}

static int sextet(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

char *trellis_decode_base64(const char *text, size_t *length) {
  size_t left = text == NULL ? 1 : strlen(text);
  if (left % 4 != 0) return NULL;
  char *bytes = trellis_allocate(left / 4 * 3 + 1), *out = bytes;
  for (; left > 0; left -= 4, text += 4) {
    /* Padding stands at the very end alone. */
    int padding = left > 4 || text[3] != '=' ? 0 : text[2] == '=' ? 2 : 1;
    uint32_t group = 0;
    for (int i = 0; i < 4; i++) {
      int value = i >= 4 - padding ? 0 : sextet(text[i]);
      if (value < 0) return NULL;
      group = group << 6 | (uint32_t)value;
    }
    if ((group & ((1u << (8 * padding)) - 1)) != 0) return NULL; /* bits that no byte has */
    for (int i = 0; i < 3 - padding; i++) *out++ = (char)(group >> (16 - 8 * i));
  }
  if (length != NULL) *length = (size_t)(out - bytes);
  return bytes;
}
