// Package controller makes Kubernetes controllers in WebAssembly, run by Trellis.
//
// Register a Reconciler in an init function, and build with -buildmode=c-shared for GOOS=wasip1 GOARCH=wasm. Objects
// are maps; Get, List, Create, Apply, Update, Patch, Delete and RecordEvent send requests to Kubernetes as the
// controller's ServiceAccount. Between two calls, a controller can be suspended to disk and restored unchanged, with
// goroutines and timers, or restarted: its memory is only a cache. Goroutines run only during a call.
package controller

import "time"

// A Key identifies the object of a call or of a request.
type Key struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"` // empty for cluster-scoped kinds
	Name       string `json:"name"`
}

// String returns kind, namespace and name: "ConfigMap team-a/settings".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// A Request is an object that may have changed.
type Request struct {
	Key         Key
	Object      Object // state in the cache of the host's watch, which can be outdated; nil if the object was deleted
	Attempt     int    // number of consecutive failures of this key
	Traceparent string // W3C trace context; empty if there is none
}

// A Result is the result of a successful call. Its zero value: wait for the next change.
type Result struct {
	RequeueAfter time.Duration // to the millisecond, rounded up
}

// Start is the input of a cold start.
type Start struct {
	Namespace  string // namespace of the WasmController
	Name       string
	Config     Object                       // spec.config; nil if there is none
	ConfigMaps map[string]map[string]string // data of spec.configMapRefs, by name
	Secrets    map[string]map[string][]byte // data of spec.secretRefs, by name
}

// Saved is the state that the former version of a module saved.
type Saved struct {
	SHA256 string
	State  Object
}

// A Reconciler reconciles the state that depends on one object. The host can call it twice for one change, and once for
// several, but never concurrently. After an error, the host retries the key with backoff, and shows the text of the
// error to users.
type Reconciler interface {
	Reconcile(Request) (Result, error)
}

// A Starter is called once after a cold start. After an error, the controller does not start, and the host retries.
type Starter interface {
	Start(Start) error
}

// A Saver returns state for the next version of this module: a value that encoding/json encodes as an object. An empty
// object counts as none.
type Saver interface {
	Save() (any, error)
}

// A Migrator is called in place of Start in the first start of a new version, if the former version saved state.
type Migrator interface {
	Migrate(Start, Saved) error
}

var registered Reconciler

// Register makes r this module's controller; call it from an init function. The host also calls the methods of Starter,
// Saver and Migrator that r has.
func Register(r Reconciler) {
	if registered != nil {
		panic("controller.Register was called twice: a module is one controller")
	}
	registered = r
}
