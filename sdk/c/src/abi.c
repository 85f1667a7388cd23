/* The ABI: what the host calls and what it offers. In: requests as JSON in memory that `alloc` gave. Out: results as
 * JSON. Called by the host. Invariant: what one call made is freed when the next begins, not before: until then the host
 * may still read its result. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(name) __attribute__((import_module("trellis"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

IMPORT("log") void host_log(int32_t level, const char *text, uint32_t length);
IMPORT("now") int64_t host_now(void);
IMPORT("monotonic") int64_t host_monotonic(void);
IMPORT("random") void host_random(void *bytes, uint32_t length);
IMPORT("requeue") void host_requeue(int64_t milliseconds);

enum { SMALLEST_PIECE = 16 * 1024, KEPT_ROOM = 64 * 1024 };

/* The memory of one call: pieces, each given out from its beginning. */
static struct piece {
  struct piece *before;
  size_t used, size;
  max_align_t bytes[];
} *pieces;

static char *request_room; /* what alloc gave last */
static uint32_t request_size;

_Noreturn void trellis_die(const char *why) {
  host_log(TRELLIS_ERROR, why, (uint32_t)strlen(why));
  __builtin_trap();
}

void *trellis_allocate(size_t size) {
  if (size > SIZE_MAX - 64 * 1024) trellis_die("out of memory");
  size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
  if (pieces == NULL || pieces->size - pieces->used < size) {
    size_t room = size > SMALLEST_PIECE ? size : SMALLEST_PIECE;
    struct piece *piece = malloc(sizeof *piece + room);
    if (piece == NULL) trellis_die("out of memory");
    *piece = (struct piece){.before = pieces, .size = room};
    pieces = piece;
  }
  void *given = (char *)pieces->bytes + pieces->used;
  pieces->used += size;
  return memset(given, 0, size);
}

void trellis_forget_call(void) {
  while (pieces != NULL) {
    struct piece *before = pieces->before;
    free(pieces);
    pieces = before;
  }
}

char *trellis_keep(const char *text) {
  if (text == NULL) return NULL;
  char *kept = strdup(text);
  if (kept == NULL) trellis_die("out of memory");
  return kept;
}

char *trellis_format_arguments(const char *pattern, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, pattern, again);
  va_end(again);
  if (length < 0) trellis_die("a format is wrong");
  char *text = trellis_allocate((size_t)length + 1);
  vsnprintf(text, (size_t)length + 1, pattern, arguments);
  return text;
}

char *trellis_format(const char *pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  char *text = trellis_format_arguments(pattern, arguments);
  va_end(arguments);
  return text;
}

void trellis_log(trellis_level level, const char *pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  char *text = trellis_format_arguments(pattern, arguments);
  va_end(arguments);
  host_log(level, text, (uint32_t)strlen(text));
}

int64_t trellis_now(void) { return host_now(); }
int64_t trellis_monotonic(void) { return host_monotonic(); }
void trellis_random(void *bytes, size_t length) { host_random(bytes, (uint32_t)length); }
void trellis_requeue(int64_t milliseconds) { host_requeue(milliseconds); }

/* -- What is optional. A controller's own take the place of these. -- */

__attribute__((weak)) const char *trellis_init(const trellis_start *start) {
  (void)start;
  return NULL;
}

__attribute__((weak)) const char *trellis_save(void) { return NULL; }

__attribute__((weak)) const char *trellis_migrate(const trellis_start *start, const char *from_sha256, json state) {
  (void)from_sha256, (void)state;
  return trellis_init(start);
}

/* -- Exports -- */

static uint64_t answer(const char *text, size_t length) { return (uint64_t)(uintptr_t)text << 32 | length; }

static uint64_t answer_error(const char *why) {
  json_text text = {0};
  json_append(&text, "{'error': %s}", why);
  return answer(text.text, text.length);
}

/* Begins a call: the request, read; no value if it is no JSON, which the host never sends. */
static json begin(const char *request, uint32_t length) {
  trellis_forget_call();
  const char *problem;
  json read = json_parse(request, length, &problem);
  if (problem != NULL) trellis_log(TRELLIS_ERROR, "the host's request is not JSON: %s", problem);
  return read;
}

EXPORT("abi_version") int32_t trellis_export_abi_version(void) { return 1; }

EXPORT("alloc") void *trellis_export_alloc(uint32_t length) {
  /* A request may be large once: its room is not kept for ever. */
  if (length > request_size || request_size > KEPT_ROOM) {
    free(request_room);
    request_room = malloc(length > 0 ? length : 1);
    request_size = request_room == NULL ? 0 : length;
  }
  return request_room;
}

EXPORT("reconcile") uint64_t trellis_export_reconcile(const char *text, uint32_t length) {
  json read = begin(text, length), key = json_get(read, "key");
  if (!json_exists(read)) return answer_error("the request is not JSON");
  trellis_request request = {
      .key = {json_string(json_get(key, "apiVersion")), json_string(json_get(key, "kind")),
              json_string(json_get(key, "namespace")), json_string(json_get(key, "name"))},
      .object = json_get(read, "object"),
      .traceparent = json_string(json_get(read, "traceparent")),
  };
  int64_t attempt;
  if (json_integer(json_get(read, "attempt"), &attempt)) request.attempt = (int)attempt;
  trellis_result result = trellis_reconcile(&request);
  if (result.error != NULL) return answer_error(result.error);
  if (result.requeue_after <= 0) return 0;
  json_text made = {0};
  json_append(&made, "{'requeueAfter': %lld}", (long long)result.requeue_after);
  return answer(made.text, made.length);
}

static trellis_start start_of(json read) {
  json controller = json_get(read, "controller");
  return (trellis_start){.ns = json_string(json_get(controller, "namespace")),
                         .name = json_string(json_get(controller, "name")),
                         .config = json_get(read, "config"),
                         .config_maps = json_get(read, "configMaps"),
                         .secrets = json_get(read, "secrets")};
}

EXPORT("init") uint64_t trellis_export_init(const char *text, uint32_t length) {
  trellis_start start = start_of(begin(text, length));
  const char *problem = trellis_init(&start);
  return problem == NULL ? 0 : answer_error(problem);
}

EXPORT("save") uint64_t trellis_export_save(void) {
  trellis_forget_call();
  const char *text = trellis_save();
  return text == NULL ? 0 : answer(text, strlen(text));
}

EXPORT("migrate") uint64_t trellis_export_migrate(const char *text, uint32_t length) {
  json read = begin(text, length), from = json_get(read, "from"), state = json_get(from, "state");
  trellis_start start = start_of(read);
  const char *problem = json_count(state) == 0
                            ? trellis_init(&start) /* the former version saved nothing */
                            : trellis_migrate(&start, json_string(json_get(from, "sha256")), state);
  return problem == NULL ? 0 : answer_error(problem);
}
