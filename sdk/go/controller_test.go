package controller

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

// call calls the registered controller as the host does.
func call(t *testing.T, r Reconciler, request string) map[string]any {
	t.Helper()
	registered = r
	answered := map[string]any{}
	if text := handleReconcile([]byte(request)); text != nil {
		if err := json.Unmarshal(text, &answered); err != nil {
			t.Fatal(err)
		}
	}
	return answered
}

type reconcile func(Request) (Result, error)

func (f reconcile) Reconcile(request Request) (Result, error) { return f(request) }

const request = `{"key": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "b"}, "attempt": 3,
	"object": {"kind": "ConfigMap", "big": 9007199254740993, "list": [{"n": 1}, 2]}, "new": "field"}`

func TestARequestIsReadWithAllItsDigits(t *testing.T) {
	call(t, reconcile(func(request Request) (Result, error) {
		if got := request.Key.String(); got != "ConfigMap a/b" {
			t.Errorf("key %s", got)
		}
		if got := request.Object["big"].(json.Number).String(); got != "9007199254740993" {
			t.Errorf("number %s", got)
		}
		if request.Attempt != 3 || len(request.Object.List("list")) != 1 {
			t.Errorf("request %v", request)
		}
		return Result{}, nil
	}), request)
}

func TestResultsAreSecondsAndErrorsAreTheirText(t *testing.T) {
	later := call(t, reconcile(func(Request) (Result, error) { return Result{1500 * time.Microsecond}, nil }), request)
	if later["requeueAfter"] != 0.002 {
		t.Errorf("later %v", later)
	}
	failed := call(t, reconcile(func(Request) (Result, error) { return Result{}, errors.New("<no>") }), request)
	if failed["error"] != "<no>" {
		t.Errorf("failed %v", failed)
	}
}

func TestAFailedRequestCanBeToldApart(t *testing.T) {
	for _, c := range []struct {
		answer string
		kind   error
	}{
		{`{"error": {"code": 409, "reason": "AlreadyExists", "message": "m"}}`, ErrAlreadyExists},
		{`{"error": {"code": 409, "reason": "Conflict", "message": "m"}}`, ErrConflict},
		{`{"error": {"code": 404, "reason": "", "message": "m"}}`, ErrNotFound},
		{`{"error": {"code": 0, "reason": "TooLarge", "message": "m"}}`, ErrTooLarge},
	} {
		Host = func([]byte) []byte { return []byte(c.answer) }
		_, err := Get(Key{"v1", "Secret", "a", "b"})
		var failed *Error
		if !errors.Is(err, c.kind) || !errors.As(err, &failed) || failed.Operation != "get Secret a/b" {
			t.Errorf("%s: %v", c.answer, err)
		}
	}
	Host = func([]byte) []byte { return []byte(`{"items": [{"a": 1}], "continue": "next"}`) }
	if page, err := List("v1", "Secret"); err != nil || len(page.Items) != 1 || page.Next != "next" {
		t.Errorf("%v %v", page, err)
	}
	Host = func([]byte) []byte { return []byte("no JSON") }
	if err := Delete(Key{}); err == nil {
		t.Error("an answer that is no JSON was taken")
	}
}
