/* Mirrors ConfigMaps into another namespace, under the same name, and deletes a mirror when its source is gone.
 *
 * In: ConfigMaps; config {"targetNamespace": "copies"}. Out: ConfigMaps there, with the annotation below.
 * Invariant: what does not have this annotation, with this source, is never changed and never deleted. */
#include <string.h>
#include <trellis/controller.h>

#define SOURCE "examples.trellis.dev/mirror-of"

static char *target;

const char *trellis_init(const trellis_start *start) {
  target = trellis_keep(json_string(json_get(start->config, "targetNamespace")));
  return target == NULL ? "config.targetNamespace is missing: the namespace that mirrors go to" : NULL;
}

static bool is_ours(json mirror, const char *source) {
  const char *made_from = json_string(json_find(mirror, "metadata", "annotations", SOURCE));
  return made_from != NULL && strcmp(made_from, source) == 0;
}

static trellis_result result_of(trellis_answer answer) {
  return answer.status == TRELLIS_OK ? trellis_done() : trellis_failed(answer);
}

static trellis_result remove_mirror(trellis_key mirror, json found) {
  trellis_delete_options as_seen = {
      .uid = json_string(json_find(found, "metadata", "uid")),
      .resource_version = json_string(json_find(found, "metadata", "resourceVersion")),
  };
  trellis_answer deleted = trellis_delete(mirror, as_seen);
  return deleted.status == TRELLIS_NOT_FOUND ? trellis_done() : result_of(deleted);
}

static json make_mirror(trellis_key mirror, const char *source, json object, json found) {
  json_text text = {0};
  json data = json_get(object, "data"), binary = json_get(object, "binaryData");
  const char *version = json_string(json_find(found, "metadata", "resourceVersion"));
  json_append(&text, "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'namespace': %s, 'name': %s", mirror.ns,
              mirror.name);
  if (version != NULL) json_append(&text, ", 'resourceVersion': %s", version);
  json_append(&text, ", 'annotations': {%s: %s}}", SOURCE, source);
  if (json_exists(data)) json_append(&text, ", 'data': %p", (const void *)&data);
  if (json_exists(binary)) json_append(&text, ", 'binaryData': %p", (const void *)&binary);
  json_append(&text, "}");
  return json_parse(text.text, text.length, NULL);
}

static bool has_same(json left, json right, const char *member) {
  json a = json_get(left, member), b = json_get(right, member);
  /* No data and {} are the same. */
  return json_count(a) == 0 ? json_count(b) == 0 : json_equal(a, b);
}

trellis_result trellis_reconcile(const trellis_request *request) {
  trellis_key mirror = {"v1", "ConfigMap", target, request->key.name};
  if (strcmp(request->key.ns, target) == 0) return trellis_done(); /* a mirror, or somebody else's */
  const char *source = trellis_format("%s/%s", request->key.ns, request->key.name);
  bool gone = json_type_of(request->object) != JSON_OBJECT;

  trellis_answer found = trellis_get(mirror);
  if (found.status == TRELLIS_NOT_FOUND) {
    return gone ? trellis_done() : result_of(trellis_create(make_mirror(mirror, source, request->object, (json){0})));
  }
  if (found.status != TRELLIS_OK) return trellis_failed(found);
  if (!is_ours(found.object, source)) {
    if (gone) return trellis_done();
    return trellis_error("ConfigMap %s/%s is there already and is no mirror of %s: rename one of the two", target,
                         mirror.name, source);
  }
  if (gone) return remove_mirror(mirror, found.object);
  if (has_same(found.object, request->object, "data") && has_same(found.object, request->object, "binaryData")) {
    return trellis_done();
  }
  return result_of(
      trellis_update(make_mirror(mirror, source, request->object, found.object), (trellis_write_options){0}));
}
