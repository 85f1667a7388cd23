/* Keeps the ConfigMaps of one namespace equal with those of another, whatever it was told and whatever it forgot.
 *
 * In: ConfigMaps of both, as a copy whose source went while nobody looked is told of by nobody else; config
 * {"from": "a", "to": "b"}. Out: ConfigMaps of the second. Invariant: each call reads both and trusts nothing else. */
#include <string.h>
#include <trellis/controller.h>

static char *from, *to;

const char *trellis_init(const trellis_start *start) {
  from = trellis_keep(json_string(json_get(start->config, "from")));
  to = trellis_keep(json_string(json_get(start->config, "to")));
  return from == NULL || to == NULL ? "config needs from and to: two namespaces" : NULL;
}

static trellis_result result_of(trellis_answer answer) {
  return answer.status == TRELLIS_OK ? trellis_done() : trellis_failed(answer);
}

static trellis_result remove_copy(trellis_key key, json copy) {
  trellis_delete_options as_seen = {
      .uid = json_string(json_find(copy, "metadata", "uid")),
      .resource_version = json_string(json_find(copy, "metadata", "resourceVersion")),
  };
  trellis_answer deleted = trellis_delete(key, as_seen);
  return deleted.status == TRELLIS_NOT_FOUND ? trellis_done() : result_of(deleted);
}

static json make_copy(trellis_key key, json source, json copy) {
  json_text text = {0};
  json data = json_get(source, "data");
  const char *version = json_string(json_find(copy, "metadata", "resourceVersion"));
  json_append(&text, "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'namespace': %s, 'name': %s", key.ns, key.name);
  if (version != NULL) json_append(&text, ", 'resourceVersion': %s", version);
  json_append(&text, ", 'labels': {'watched': 'true'}}, 'data': %p}", (const void *)&data);
  return json_parse(text.text, text.length, NULL);
}

trellis_result trellis_reconcile(const trellis_request *request) {
  trellis_key source_key = {"v1", "ConfigMap", from, request->key.name};
  trellis_key copy_key = {"v1", "ConfigMap", to, request->key.name};
  trellis_answer copy = trellis_get(copy_key), source = trellis_get(source_key);
  bool is_copied = copy.status == TRELLIS_OK;
  if (!is_copied && copy.status != TRELLIS_NOT_FOUND) return trellis_failed(copy);
  if (source.status == TRELLIS_NOT_FOUND) return is_copied ? remove_copy(copy_key, copy.object) : trellis_done();
  if (source.status != TRELLIS_OK) return trellis_failed(source);
  if (!is_copied) return result_of(trellis_create(make_copy(copy_key, source.object, (json){0})));
  if (json_equal(json_get(copy.object, "data"), json_get(source.object, "data"))) return trellis_done();
  return result_of(trellis_update(make_copy(copy_key, source.object, copy.object), (trellis_write_options){0}));
}
