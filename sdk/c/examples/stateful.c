/* Remembers what it has seen, to show that suspending loses nothing: a controller for tests and measurements.
 *
 * In: objects of any kind; config {"bytes": N}, how much memory it holds besides. Out: a ConfigMap "<name>-seen" beside
 * each object, with how often it was called and what it has seen; after a cold start it begins anew, and a new version
 * takes over what the former one saved. */
#include <stdlib.h>
#include <string.h>
#include <trellis/controller.h>

typedef struct seen {
  struct seen *next; /* by name */
  char *name;
  int64_t times;
} seen;

static seen *table;
static int64_t calls;
static int64_t last_clock;
static unsigned char *filler;
static int64_t filler_size;

static void remember(const char *name, int64_t times) {
  seen **at = &table;
  while (*at != NULL && strcmp((*at)->name, name) < 0) at = &(*at)->next;
  if (*at == NULL || strcmp((*at)->name, name) != 0) {
    seen *added = calloc(1, sizeof *added);
    *added = (seen){.next = *at, .name = trellis_keep(name)};
    *at = added;
  }
  (*at)->times += times;
}

static bool filler_is_whole(void) {
  for (int64_t i = 0; i < filler_size; i++)
    if (filler[i] != (unsigned char)(i % 251)) return false;
  return true;
}

static const char *names(void) {
  json_text text = {0};
  json_append(&text, "{");
  for (seen *at = table; at != NULL; at = at->next)
    json_append(&text, at == table ? "%s: %lld" : ", %s: %lld", at->name, (long long)at->times);
  json_append(&text, "}");
  return text.text;
}

const char *trellis_init(const trellis_start *start) {
  json bytes = json_get(start->config, "bytes");
  if (!json_exists(bytes)) return NULL;
  if (!json_integer(bytes, &filler_size) || filler_size < 0 || filler_size > INT32_MAX) {
    return "config.bytes is no whole number from 0 to 2147483647";
  }
  filler = malloc((size_t)filler_size + 1);
  if (filler == NULL) return "config.bytes is more than there is memory";
  for (int64_t i = 0; i < filler_size; i++) filler[i] = (unsigned char)(i % 251);
  return NULL;
}

const char *trellis_save(void) {
  json_text text = {0};
  const char *table_text = names();
  json seen_names = json_parse(table_text, strlen(table_text), NULL);
  json_append(&text, "{'calls': %lld, 'seen': %p}", (long long)calls, (const void *)&seen_names);
  return text.text;
}

const char *trellis_migrate(const trellis_start *start, const char *from_sha256, json state) {
  (void)from_sha256;
  json saved = json_get(state, "seen");
  for (json item = json_first(saved); json_exists(item); item = json_next(saved, item)) {
    int64_t times;
    if (json_integer(item, &times)) remember(json_name(item), times);
  }
  json_integer(json_get(state, "calls"), &calls);
  return trellis_init(start);
}

trellis_result trellis_reconcile(const trellis_request *request) {
  int64_t clock = trellis_monotonic();
  bool clock_is_right = clock >= last_clock;
  last_clock = clock;
  calls++;
  remember(request->key.name, 1);
  json report = json_make(
      "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'namespace': %s, 'name': %s},"
      " 'data': {'calls': %s, 'seen': %s, 'memory': %s, 'clock': %s}}",
      request->key.ns, trellis_format("%s-seen", request->key.name), trellis_format("%lld", (long long)calls), names(),
      filler_is_whole() ? "whole" : "damaged", clock_is_right ? "forward" : "backward");
  trellis_answer applied = trellis_apply(report, (trellis_write_options){.force = true});
  return applied.status == TRELLIS_OK ? trellis_done() : trellis_failed(applied);
}
