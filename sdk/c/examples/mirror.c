/* Mirrors ConfigMaps into another namespace, under the same name, and deletes a mirror when its source is gone.
 *
 * In: ConfigMaps, and the mirrors, as of one whose source went while nobody looked nothing else tells; config
 * {"targetNamespace": "copies", "selector": "app=shop"}, as `kubectl -l` takes it; without a selector it is all.
 * Out: ConfigMaps there, with the annotation and the label below.
 * Invariant: what does not have this annotation, with this source, is never changed and never deleted. */
#include <string.h>
#include <trellis/controller.h>

#define SOURCE "examples.trellis.dev/mirror-of"
#define FROM "examples.trellis.dev/mirrored-from" /* the source's namespace, so that a watch can select its mirrors */

static char *target, *selector;

const char *trellis_init(const trellis_start *start) {
  target = trellis_keep(json_string(json_get(start->config, "targetNamespace")));
  selector = trellis_keep(json_string(json_get(start->config, "selector")));
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

static json make_mirror(trellis_key mirror, const char *ns, const char *source, json object, json found) {
  json_text text = {0};
  json data = json_get(object, "data"), binary = json_get(object, "binaryData");
  const char *version = json_string(json_find(found, "metadata", "resourceVersion"));
  json_append(&text, "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'namespace': %s, 'name': %s", mirror.ns,
              mirror.name);
  if (version != NULL) json_append(&text, ", 'resourceVersion': %s", version);
  json_append(&text, ", 'labels': {%s: %s}, 'annotations': {%s: %s}}", FROM, ns, SOURCE, source);
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

static bool is_mirrored(json found, json object, const char *ns) {
  const char *from = json_string(json_find(found, "metadata", "labels", FROM));
  return from != NULL && strcmp(from, ns) == 0 && has_same(found, object, "data") &&
         has_same(found, object, "binaryData");
}

/* Make the mirror of an object right; of one that is gone, too. */
static trellis_result bring(const char *ns, const char *name, json object) {
  trellis_key mirror = {"v1", "ConfigMap", target, name};
  const char *source = trellis_format("%s/%s", ns, name);
  bool gone = json_type_of(object) != JSON_OBJECT;

  trellis_answer found = trellis_get(mirror);
  if (found.status == TRELLIS_NOT_FOUND) {
    return gone ? trellis_done() : result_of(trellis_create(make_mirror(mirror, ns, source, object, (json){0})));
  }
  if (found.status != TRELLIS_OK) return trellis_failed(found);
  if (!is_ours(found.object, source)) {
    if (gone) return trellis_done();
    return trellis_error("ConfigMap %s/%s is there already and is no mirror of %s: rename one of the two", target, name,
                         source);
  }
  if (gone) return remove_mirror(mirror, found.object);
  if (is_mirrored(found.object, object, ns)) return trellis_done();
  return result_of(trellis_update(make_mirror(mirror, ns, source, object, found.object), (trellis_write_options){0}));
}

/* What a mirror's annotation names is looked for; what bears none, or one with another name, is somebody else's. */
static trellis_result bring_back(const char *name, json mirror) {
  const char *source = json_string(json_find(mirror, "metadata", "annotations", SOURCE));
  const char *slash = source == NULL ? NULL : strchr(source, '/');
  if (slash == NULL || strcmp(slash + 1, name) != 0) return trellis_done();
  const char *ns = trellis_format("%.*s", (int)(slash - source), source);
  trellis_list_options only = {.ns = ns, .label_selector = selector, .limit = 1,
                               .field_selector = trellis_format("metadata.name=%s", name)};
  trellis_answer found = trellis_list("v1", "ConfigMap", only);
  return found.status == TRELLIS_OK ? bring(ns, name, json_first(found.items)) : trellis_failed(found);
}

trellis_result trellis_reconcile(const trellis_request *request) {
  trellis_key key = request->key;
  return strcmp(key.ns, target) == 0 ? bring_back(key.name, request->object) : bring(key.ns, key.name, request->object);
}
