// Package controller makes Kubernetes controllers in WebAssembly, run by Trellis.
//
// Register a Reconciler in an init function, build with -buildmode=c-shared for GOOS=wasip1 GOARCH=wasm. Objects are
// maps; Get, List, Create, Apply, Update, Patch, Delete and Tell ask Kubernetes, as the controller's ServiceAccount.
// Between two calls a controller may be put to disk and brought back as it was, goroutines and timers too, or be started
// anew: what it holds in memory is a cache. Goroutines run only while a call is under way.
package controller

import "time"

// A Key says which object a call is about, or a request asks for.
type Key struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"` // empty for kinds that have none
	Name       string `json:"name"`
}

// String is "ConfigMap team-a/settings".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// A Request is one object that may have changed.
type Request struct {
	Key         Key
	Object      Object // what the host's watch shows, as old as any cache; nil if the object is gone
	Attempt     int    // failures of this key in a row
	Traceparent string // W3C trace context; empty if there is none
}

// A Result says when to be called again. Its zero value: when something changes.
type Result struct {
	RequeueAfter time.Duration // to the millisecond, rounded up
}

// Start is what a controller is told once, after a cold start.
type Start struct {
	Namespace  string // of the WasmController
	Name       string
	Config     Object                       // spec.config; nil if there is none
	ConfigMaps map[string]map[string]string // name → data
	Secrets    map[string]map[string][]byte // name → data
}

// Saved is what the former version of a module saved.
type Saved struct {
	SHA256 string
	State  Object
}

// A Reconciler makes right what depends on one object. It may be called twice for one change, and once for several. An
// error has the key tried again, later and later; people see its text. There is one call at a time.
type Reconciler interface {
	Reconcile(Request) (Result, error)
}

// A Starter wants to be called once after a cold start. An error keeps the controller from starting; it is tried again.
type Starter interface {
	Start(Start) error
}

// A Saver has something that the next version of this module should know: what encoding/json makes an object of; an
// empty one is nothing.
type Saver interface {
	Save() (any, error)
}

// A Migrator is called instead of Start in the first start of a new version, with what the former one saved, if
// that is not nothing.
type Migrator interface {
	Migrate(Start, Saved) error
}

var registered Reconciler

// Register makes r this module's controller; call it from an init function. What else the host calls is what r has of
// Starter, Saver and Migrator.
func Register(r Reconciler) {
	if registered != nil {
		panic("controller.Register was called twice: a module is one controller")
	}
	registered = r
}
