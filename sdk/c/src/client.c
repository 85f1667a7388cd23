/* Requests to Kubernetes. In: keys, objects, options. Out: answers with a typed status. Called by controllers.
 * Invariant: a field is left out of a request where an option is not set, so the host's defaults count. */
#include "internal.h"

#include <string.h>

#define IMPORT(name) __attribute__((import_module("trellis"), import_name(name)))

IMPORT("call") uint32_t host_call(const char *request, uint32_t length);
IMPORT("take") void host_take(char *room);

static const struct {
  const char *reason;
  int code;
  trellis_status status;
} REASONS[] = {
    /* By reason first: 409 stands for two of them. */
    {"AlreadyExists", -1, TRELLIS_ALREADY_EXISTS},
    {"NotFound", 404, TRELLIS_NOT_FOUND},
    {"Conflict", 409, TRELLIS_CONFLICT},
    {"Forbidden", 403, TRELLIS_FORBIDDEN},
    {"Invalid", 422, TRELLIS_INVALID},
    {"BadRequest", 400, TRELLIS_INVALID},
    {"InvalidRequest", -1, TRELLIS_INVALID},
    {"Expired", 410, TRELLIS_GONE},
    {"Gone", -1, TRELLIS_GONE},
    {"TooManyRequests", 429, TRELLIS_TOO_MANY},
    {"TooManyCalls", -1, TRELLIS_TOO_MANY},
    {"TooLarge", -1, TRELLIS_TOO_LARGE},
    {"RequestEntityTooLarge", 413, TRELLIS_TOO_LARGE},
    {"Timeout", 504, TRELLIS_TIMEOUT},
    {"ServerTimeout", -1, TRELLIS_TIMEOUT},
    {"Unavailable", 503, TRELLIS_UNAVAILABLE},
    {"ServiceUnavailable", -1, TRELLIS_UNAVAILABLE},
};

static trellis_status status_of(const char *reason, int code) {
  size_t count = sizeof REASONS / sizeof *REASONS;
  for (size_t i = 0; i < count; i++)
    if (strcmp(REASONS[i].reason, reason) == 0) return REASONS[i].status;
  for (size_t i = 0; i < count; i++)
    if (REASONS[i].code == code) return REASONS[i].status;
  return TRELLIS_FAILED;
}

static trellis_answer failure(json error, const char *what) {
  int64_t code = 0;
  json_integer(json_get(error, "code"), &code);
  const char *reason = json_string(json_get(error, "reason")), *message = json_string(json_get(error, "message"));
  trellis_answer answer = {.code = (int)code, .reason = reason != NULL ? reason : ""};
  answer.status = status_of(answer.reason, answer.code);
  answer.message = trellis_format("%s: %s: %s", what, answer.reason, message != NULL ? message : "no message");
  return answer;
}

static trellis_answer call_text(const char *text, size_t length, const char *what) {
  uint32_t room = host_call(text, (uint32_t)length);
  char *said = trellis_allocate((size_t)room + 1);
  host_take(said);
  const char *problem;
  json read = json_parse(said, room, &problem);
  if (problem != NULL) {
    json error = json_make("{'code': 0, 'reason': 'BadAnswer', 'message': %s}", problem);
    return failure(error, what);
  }
  json error = json_get(read, "error");
  if (json_exists(error)) return failure(error, what);
  const char *next = json_string(json_get(read, "continue"));
  return (trellis_answer){.object = json_get(read, "object"),
                          .items = json_get(read, "items"),
                          .next = next != NULL && *next != 0 ? next : NULL};
}

trellis_answer trellis_call(json request, const char *what) {
  size_t length;
  const char *text = json_source(request, &length);
  return call_text(text, length, what);
}

/* -- Making requests -- */

static void option(json_text *request, const char *name, const char *value) {
  if (value != NULL) json_append(request, ", %s: %s", name, value);
}

static void options_of_write(json_text *request, trellis_write_options options) {
  if (options.force) json_append(request, ", 'force': true");
  option(request, "subresource", options.subresource);
}

static trellis_answer finish(json_text *request, const char *what) {
  json_append(request, "}");
  return call_text(request->text, request->length, what);
}

static const char *describe(const char *verb, trellis_key key) {
  return trellis_format("%s %s %s%s%s", verb, key.kind ? key.kind : "object", key.ns ? key.ns : "", key.ns ? "/" : "",
                        key.name ? key.name : "without a name");
}

static json_text begin_keyed(const char *verb, trellis_key key) {
  json_text request = {0};
  json_append(&request, "{'op': %s, 'apiVersion': %s, 'kind': %s, 'name': %s", verb, key.api_version, key.kind, key.name);
  option(&request, "namespace", key.ns);
  return request;
}

static trellis_answer write_object(const char *verb, json object, trellis_write_options options) {
  json_text request = {0};
  json_append(&request, "{'op': %s, 'object': %p", verb, (const void *)&object);
  options_of_write(&request, options);
  return finish(&request, describe(verb, trellis_key_of(object)));
}

trellis_key trellis_key_of(json object) {
  json metadata = json_get(object, "metadata");
  return (trellis_key){json_string(json_get(object, "apiVersion")), json_string(json_get(object, "kind")),
                       json_string(json_get(metadata, "namespace")), json_string(json_get(metadata, "name"))};
}

trellis_answer trellis_get(trellis_key key) {
  json_text request = begin_keyed("get", key);
  return finish(&request, describe("get", key));
}

trellis_answer trellis_list(const char *api_version, const char *kind, trellis_list_options options) {
  json_text request = {0};
  json_append(&request, "{'op': 'list', 'apiVersion': %s, 'kind': %s", api_version, kind);
  option(&request, "namespace", options.ns);
  option(&request, "labelSelector", options.label_selector);
  option(&request, "fieldSelector", options.field_selector);
  if (options.limit > 0) json_append(&request, ", 'limit': %d", options.limit);
  option(&request, "continue", options.next);
  return finish(&request, trellis_format("list %s", kind));
}

trellis_answer trellis_create(json object) { return write_object("create", object, (trellis_write_options){0}); }

trellis_answer trellis_apply(json object, trellis_write_options options) {
  return write_object("apply", object, options);
}

trellis_answer trellis_update(json object, trellis_write_options options) {
  return write_object("update", object, options);
}

trellis_answer trellis_patch(trellis_key key, const char *type, json patch, trellis_write_options options) {
  json_text request = begin_keyed("patch", key);
  json_append(&request, ", 'type': %s, 'patch': %p", type, (const void *)&patch);
  options_of_write(&request, options);
  return finish(&request, describe("patch", key));
}

trellis_answer trellis_delete(trellis_key key, trellis_delete_options options) {
  json_text request = begin_keyed("delete", key);
  option(&request, "uid", options.uid);
  option(&request, "resourceVersion", options.resource_version);
  option(&request, "propagationPolicy", options.propagation_policy);
  return finish(&request, describe("delete", key));
}

trellis_answer trellis_event(json regarding, const char *type, const char *reason, const char *message) {
  trellis_key key = trellis_key_of(regarding);
  json_text request = {0};
  json_append(&request, "{'op': 'event', 'regarding': {'apiVersion': %s, 'kind': %s, 'name': %s", key.api_version,
              key.kind, key.name);
  option(&request, "namespace", key.ns);
  option(&request, "uid", json_string(json_find(regarding, "metadata", "uid")));
  json_append(&request, "}, 'type': %s, 'reason': %s, 'message': %s", type, reason, message);
  return finish(&request, describe("event about", key));
}

/* -- Results -- */

trellis_result trellis_done(void) { return (trellis_result){0}; }

trellis_result trellis_requeue_after(int64_t seconds) { return (trellis_result){.requeue_after = seconds}; }

trellis_result trellis_error(const char *pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  const char *text = trellis_format_arguments(pattern, arguments);
  va_end(arguments);
  return (trellis_result){.error = text};
}

trellis_result trellis_failed(trellis_answer answer) {
  return (trellis_result){.error = answer.message != NULL ? answer.message : "a request failed"};
}
