// Deletes finished Jobs after a time to live.
//
// In: Jobs; config {"seconds": 3600}, or the annotation below on a Job, which takes precedence. Out: deletions, each
// with an Event. Invariant: a Job that is not finished, or has another uid than the evaluated one, is never deleted;
// Kubernetes itself deletes a Job with spec.ttlSecondsAfterFinished.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"trellis.dev/controller"
)

const (
	annotation = "examples.trellis.dev/ttl-seconds"
	longest    = 1_000_000_000
	forever    = -1
)

type ttl struct{ configured int64 }

func (t *ttl) Start(start controller.Start) error {
	value, ok := start.Config["seconds"]
	if !ok {
		return nil
	}
	text, _ := value.(json.Number)
	seconds, ok := controller.ParseNumber(text.String())
	if !ok || seconds > longest {
		return fmt.Errorf("config.seconds is no whole number of seconds from 0 to %d", longest)
	}
	t.configured = seconds
	return nil
}

func (t *ttl) Reconcile(request controller.Request) (controller.Result, error) {
	done, job := controller.Result{}, request.Object
	if job.Get("metadata", "deletionTimestamp") != nil || job.Get("spec", "ttlSecondsAfterFinished") != nil {
		return done, nil
	}
	lives, err := t.timeToLive(request)
	finished, ok := finishedAt(job)
	if err != nil || lives == forever || !ok {
		return done, err
	}
	now := controller.Now() / int64(time.Second)
	if now < finished+lives {
		return controller.Result{RequeueAfter: time.Duration(finished+lives-now) * time.Second}, nil
	}
	uid, _ := job.String("metadata", "uid")
	err = controller.Delete(request.Key, controller.UID(uid), controller.Propagation("Background"))
	if errors.Is(err, controller.ErrNotFound) || errors.Is(err, controller.ErrConflict) {
		return done, nil // Conflict: a new Job has this name, and gets its own call
	}
	if err != nil {
		return done, err
	}
	message := fmt.Sprintf("deleted %d s after it finished", now-finished)
	if err := controller.RecordEvent(job, controller.Normal, "TimeToLiveExpired", message); err != nil {
		controller.Warningf("%v", err) // the Job was deleted: a retry would record an Event about nothing
	}
	return done, nil
}

// timeToLive returns the seconds from the end of a Job to its deletion.
func (t *ttl) timeToLive(request controller.Request) (int64, error) {
	text, ok := request.Object.String("metadata", "annotations", annotation)
	if !ok {
		return t.configured, nil
	}
	seconds, ok := controller.ParseNumber(text)
	if !ok || seconds > longest {
		return 0, fmt.Errorf("the annotation %s is no whole number of seconds from 0 to %d: %s",
			annotation, longest, text)
	}
	return seconds, nil
}

// finishedAt returns the end in seconds since 1970; false if the Job has not finished.
func finishedAt(job controller.Object) (int64, bool) {
	for _, condition := range job.List("status", "conditions") {
		ended := condition["type"] == "Complete" || condition["type"] == "Failed"
		if !ended || condition["status"] != "True" {
			continue
		}
		text, _ := condition.String("lastTransitionTime")
		at, err := time.Parse(time.RFC3339, text)
		return at.Unix(), err == nil
	}
	return 0, false
}

func init() { controller.Register(&ttl{configured: forever}) }

func main() {}
