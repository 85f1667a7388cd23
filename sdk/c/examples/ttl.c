/* Deletes finished Jobs some time after they finished.
 *
 * In: Jobs; config {"seconds": 3600}, or the annotation below on a Job, which counts more. Out: deletions, with an Event
 * each. Invariant: a Job that is not finished, or has another uid than the one that was looked at, is never deleted; one
 * that has spec.ttlSecondsAfterFinished is Kubernetes' own affair. */
#include <string.h>
#include <trellis/controller.h>

#define SECONDS "examples.trellis.dev/ttl-seconds"

static const int64_t NANOSECONDS = 1000000000, LONGEST = 1000000000;
static int64_t configured = -1; /* below 0: only Jobs with the annotation */

const char *trellis_init(const trellis_start *start) {
  json seconds = json_get(start->config, "seconds");
  if (!json_exists(seconds)) return NULL;
  if (!json_integer(seconds, &configured) || configured < 0 || configured > LONGEST) {
    return "config.seconds is no whole number of seconds from 0 to 1000000000";
  }
  return NULL;
}

/* When the Job finished, in seconds since 1970; false if it has not. */
static bool finished_at(json job, int64_t *seconds) {
  json conditions = json_find(job, "status", "conditions");
  for (json item = json_first(conditions); json_exists(item); item = json_next(conditions, item)) {
    const char *type = json_string(json_get(item, "type")), *status = json_string(json_get(item, "status"));
    if (type == NULL || status == NULL || strcmp(status, "True") != 0) continue;
    if (strcmp(type, "Complete") != 0 && strcmp(type, "Failed") != 0) continue;
    return trellis_parse_time(json_string(json_get(item, "lastTransitionTime")), seconds);
  }
  return false;
}

/* Seconds to live after the end; below 0: for ever. False if the annotation is no number. */
static bool time_to_live(const char *annotation, int64_t *seconds) {
  *seconds = configured;
  if (annotation == NULL) return true;
  return trellis_parse_number(annotation, seconds) && *seconds <= LONGEST;
}

trellis_result trellis_reconcile(const trellis_request *request) {
  json job = request->object, metadata = json_get(job, "metadata");
  trellis_key key = request->key;
  const char *annotation = json_string(json_find(metadata, "annotations", SECONDS));
  int64_t finished, lives, now = trellis_now() / NANOSECONDS;
  if (json_exists(json_get(metadata, "deletionTimestamp"))) return trellis_done();
  if (json_exists(json_find(job, "spec", "ttlSecondsAfterFinished"))) return trellis_done();
  if (!time_to_live(annotation, &lives)) {
    return trellis_error("the annotation %s is no whole number of seconds from 0 to %lld: %s", SECONDS,
                         (long long)LONGEST, annotation);
  }
  if (lives < 0 || !finished_at(job, &finished)) return trellis_done();
  if (now < finished + lives) return trellis_requeue_after(finished + lives - now);

  trellis_delete_options this_one = {.uid = json_string(json_get(metadata, "uid")), .propagation_policy = "Background"};
  trellis_answer deleted = trellis_delete(key, this_one);
  /* Conflict: another Job has the name by now, and comes by itself. */
  if (deleted.status == TRELLIS_NOT_FOUND || deleted.status == TRELLIS_CONFLICT) return trellis_done();
  if (deleted.status != TRELLIS_OK) return trellis_failed(deleted);
  const char *message = trellis_format("deleted %lld s after it finished", (long long)(now - finished));
  trellis_answer told = trellis_event(job, "Normal", "TimeToLiveExpired", message);
  /* The Job is gone: to try again would tell of nothing. */
  if (told.status != TRELLIS_OK) trellis_log(TRELLIS_WARNING, "%s", told.message);
  return trellis_done();
}
