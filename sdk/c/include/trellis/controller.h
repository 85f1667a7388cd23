/* A Kubernetes controller in WebAssembly, in C.
 *
 * Define `trellis_reconcile`, and what else you need of the functions below it; link with the files in src/.
 * In: objects that may have changed, one at a time. Out: requests to Kubernetes, made as the controller's ServiceAccount.
 * Whatever a function of this SDK returns lives until the next call of the controller begins. What is in memory is a
 * cache: the controller may be put to disk between two calls, and started anew at any time.
 */
#ifndef TRELLIS_CONTROLLER_H
#define TRELLIS_CONTROLLER_H

#include "trellis/json.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trellis_key {
  const char *api_version; /* "v1", "batch/v1" */
  const char *kind;
  const char *ns; /* namespace; NULL for kinds that have none */
  const char *name;
} trellis_key;

typedef struct trellis_request {
  trellis_key key;
  json object;  /* what the host's watch shows, as old as any cache; JSON_NULL if the object is gone */
  int attempt;  /* failures of this key in a row */
  const char *traceparent; /* W3C trace context, or NULL */
} trellis_request;

typedef struct trellis_result {
  const char *error;     /* not NULL: call again, later and later; people see the text */
  int64_t requeue_after; /* > 0: call again after that many seconds */
} trellis_result;

trellis_result trellis_done(void);
trellis_result trellis_requeue_after(int64_t seconds);
trellis_result trellis_error(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

typedef struct trellis_start {
  const char *ns; /* of the WasmController */
  const char *name;
  json config;      /* spec.config */
  json config_maps; /* name -> data */
  json secrets;     /* name -> data, values in base64: trellis_decode_base64 */
} trellis_start;

/* -- What a controller defines ------------------------------------------------------------------------------------ */

/* Make right what depends on one object. It may be called twice for one change, and once for several. */
trellis_result trellis_reconcile(const trellis_request *request);

/* Optional. Once after a cold start. NULL: ready; else why not. */
const char *trellis_init(const trellis_start *start);

/* Optional. A JSON object that the next version of this module should know; NULL or {}: nothing. */
const char *trellis_save(void);

/* Optional. Instead of trellis_init, in the first start of a new version, with what the former one saved.
 * Not defined, or nothing saved: trellis_init is called. */
const char *trellis_migrate(const trellis_start *start, const char *from_sha256, json state);

/* -- Kubernetes --------------------------------------------------------------------------------------------------- */

typedef enum trellis_status {
  TRELLIS_OK,
  TRELLIS_NOT_FOUND,
  TRELLIS_ALREADY_EXISTS,
  TRELLIS_CONFLICT,
  TRELLIS_FORBIDDEN,
  TRELLIS_INVALID, /* the request, by the host's or the API server's word */
  TRELLIS_GONE,    /* a `next` of a list that is too old */
  TRELLIS_TOO_MANY,
  TRELLIS_TOO_LARGE, /* an answer: ask for less */
  TRELLIS_TIMEOUT,
  TRELLIS_UNAVAILABLE,
  TRELLIS_FAILED, /* anything else; see `reason` */
} trellis_status;

typedef struct trellis_answer {
  trellis_status status;
  json object;         /* of get, create, apply, update, patch */
  json items;          /* of list */
  const char *next;    /* of list: where the next page begins; NULL at the end */
  int code;            /* HTTP status; 0: no server was asked */
  const char *reason;  /* "NotFound" */
  const char *message; /* what was tried and the server's own words; NULL if it went well */
} trellis_answer;

typedef struct trellis_list_options {
  const char *ns; /* NULL: all namespaces */
  const char *label_selector, *field_selector;
  int limit;        /* 0: the host's default, 100 */
  const char *next; /* from the answer before */
} trellis_list_options;

typedef struct trellis_delete_options {
  const char *uid, *resource_version; /* only if it still has these */
  const char *propagation_policy;     /* "Background", "Foreground", "Orphan" */
} trellis_delete_options;

typedef struct trellis_write_options {
  bool force;              /* apply: take fields from other managers */
  const char *subresource; /* "status" */
} trellis_write_options;

trellis_answer trellis_get(trellis_key key);
trellis_answer trellis_list(const char *api_version, const char *kind, trellis_list_options options);
trellis_answer trellis_create(json object);
trellis_answer trellis_apply(json object, trellis_write_options options);
trellis_answer trellis_update(json object, trellis_write_options options);
/* type: "merge" or "json" */
trellis_answer trellis_patch(trellis_key key, const char *type, json patch, trellis_write_options options);
trellis_answer trellis_delete(trellis_key key, trellis_delete_options options);
/* type: "Normal" or "Warning"; reason: one word in CamelCase */
trellis_answer trellis_event(json regarding, const char *type, const char *reason, const char *message);

/* Any request of the ABI, for what has no function here. `what` stands at the beginning of its message. */
trellis_answer trellis_call(json request, const char *what);

/* The result for a request that failed: to be tried again. */
trellis_result trellis_failed(trellis_answer answer);

/* The key of an object; its names are NULL where it has none. */
trellis_key trellis_key_of(json object);

/* -- The host ----------------------------------------------------------------------------------------------------- */

typedef enum trellis_level { TRELLIS_DEBUG, TRELLIS_INFO, TRELLIS_WARNING, TRELLIS_ERROR } trellis_level;

void trellis_log(trellis_level level, const char *pattern, ...) __attribute__((format(printf, 2, 3)));
int64_t trellis_now(void);       /* nanoseconds since 1970 */
int64_t trellis_monotonic(void); /* nanoseconds of a clock that never goes back */
void trellis_random(void *bytes, size_t length);
void trellis_requeue(int64_t milliseconds); /* as requeue_after; the shorter of the two counts */

/* Seconds since 1970 of a time as Kubernetes writes it: 2026-11-22T13:00:00Z, fractions cut off. False: it is none. */
bool trellis_parse_time(const char *text, int64_t *seconds);

/* A whole number, written in digits alone, as people write them into annotations. False: it is none, or too large. */
bool trellis_parse_number(const char *text, int64_t *number);

/* Decode base64, which values of Secrets and of binaryData are in; a zero stands behind the bytes. NULL: it is none. */
char *trellis_decode_base64(const char *text, size_t *length);

/* -- Memory ------------------------------------------------------------------------------------------------------- */

void *trellis_allocate(size_t size);       /* zeroed; until the next call begins; never NULL: it traps */
char *trellis_keep(const char *text);      /* a copy for good, to be freed with free(); NULL of NULL */
char *trellis_format(const char *pattern, ...) __attribute__((format(printf, 1, 2))); /* until the next call begins */

#ifdef __cplusplus
}
#endif
#endif
