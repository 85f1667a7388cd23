/* Reads the text of a ConfigMap's data.text as JSON and writes it again, piece by piece: what tests feed garbage to.
 *
 * Or data.base64, which is answered by how many bytes it is and their sum.
 * Out: a ConfigMap "read" whose data.text is the value as written by templates, or the error that it is none. Its
 * data.same says whether json_equal finds the two equal. */
#include <string.h>
#include <trellis/controller.h>

static void write(json_text *to, json value) {
  json_type type = json_type_of(value);
  if (type == JSON_STRING) {
    json_append(to, "%s", json_string(value));
  } else if (type == JSON_ARRAY || type == JSON_OBJECT) {
    json_append(to, type == JSON_ARRAY ? "[" : "{");
    for (json item = json_first(value); json_exists(item); item = json_next(value, item)) {
      if (item.token != json_first(value).token) json_append(to, ", ");
      if (type == JSON_OBJECT) json_append(to, "%s: ", json_name(item));
      write(to, item);
    }
    json_append(to, type == JSON_ARRAY ? "]" : "}");
  } else {
    int64_t number;
    if (json_integer(value, &number))
      json_append(to, "%lld", (long long)number);
    else
      json_append(to, "%p", (const void *)&value);
  }
}

static trellis_result sum(const char *text) {
  size_t length, total = 0;
  const unsigned char *bytes = (const unsigned char *)trellis_decode_base64(text, &length);
  if (bytes == NULL) return trellis_error("no base64");
  for (size_t i = 0; i < length; i++) total = total * 31 % 1000003 + bytes[i];
  return trellis_error("%zu bytes, %zu", length, total);
}

trellis_result trellis_reconcile(const trellis_request *request) {
  const char *encoded = json_string(json_find(request->object, "data", "base64"));
  if (encoded != NULL) return sum(encoded);
  size_t length;
  const char *problem, *text = json_string_with_length(json_find(request->object, "data", "text"), &length);
  json read = json_parse(text, length, &problem), again;
  if (problem != NULL) return trellis_error("%s", problem);
  json_text written = {0};
  write(&written, read);
  again = json_parse(written.text, written.length, &problem);
  if (problem != NULL) return trellis_error("written wrongly: %s", problem);
  json report = json_make("{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'read', 'namespace': 'n'},"
                          " 'data': {'text': %s, 'same': %s}}",
                          written.text, json_equal(read, again) ? "true" : "false");
  trellis_answer applied = trellis_apply(report, (trellis_write_options){0});
  return applied.status == TRELLIS_OK ? trellis_done() : trellis_failed(applied);
}
