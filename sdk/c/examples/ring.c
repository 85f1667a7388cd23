/* A member of a ring: when the ConfigMap it watches has a newer data.nonce, the next one gets it.
 *
 * In: ConfigMaps; config {"next": "ring-7"}, a name in the same namespace. Out: data.nonce of the next, applied.
 * What was passed on last is remembered, which spares a request; after a cold start the next one tells. */
#include <string.h>
#include <trellis/controller.h>

static char *next_name;
static int64_t passed_on = -1;

const char *trellis_init(const trellis_start *start) {
  next_name = trellis_keep(json_string(json_get(start->config, "next")));
  return next_name == NULL ? "config.next is missing: the name of the next ConfigMap" : NULL;
}

trellis_result trellis_reconcile(const trellis_request *request) {
  trellis_key key = request->key, next = key;
  const char *text = json_string(json_find(request->object, "data", "nonce"));
  if (text == NULL || strcmp(key.name, next_name) == 0) return trellis_done();
  int64_t nonce, old;
  if (!trellis_parse_number(text, &nonce)) return trellis_error("data.nonce is no whole number: %s", text);
  if (nonce <= passed_on) return trellis_done();

  next.name = next_name;
  trellis_answer found = trellis_get(next);
  if (found.status != TRELLIS_OK && found.status != TRELLIS_NOT_FOUND) return trellis_failed(found);
  if (!trellis_parse_number(json_string(json_find(found.object, "data", "nonce")), &old) || old < nonce) {
    json wanted = json_make(
        "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'namespace': %s, 'name': %s}, 'data': {'nonce': %s}}",
        next.ns, next.name, text);
    trellis_answer applied = trellis_apply(wanted, (trellis_write_options){.force = true});
    if (applied.status != TRELLIS_OK) return trellis_failed(applied);
  }
  passed_on = nonce;
  return trellis_done();
}
