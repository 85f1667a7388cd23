package controller

import "encoding/json"

// An Option is an optional field of a request.
type Option func(request map[string]any)

func field(name string, value any) Option {
	return func(request map[string]any) { request[name] = value }
}

// Options of lists.
func InNamespace(name string) Option       { return field("namespace", name) }
func LabelSelector(selector string) Option { return field("labelSelector", selector) }
func FieldSelector(selector string) Option { return field("fieldSelector", selector) }
func Limit(items int) Option               { return field("limit", items) }
func From(next string) Option              { return field("continue", next) } // Page.Next of the former page

// Options of writes.
func Force() Option                  { return field("force", true) } // for apply: take over fields of other field managers
func Subresource(name string) Option { return field("subresource", name) }

// Options of deletions: preconditions, and the policy for dependent objects.
func UID(uid string) Option                 { return field("uid", uid) }
func ResourceVersion(version string) Option { return field("resourceVersion", version) }
func Propagation(policy string) Option      { return field("propagationPolicy", policy) } // "Background", "Foreground" or "Orphan"

// A Page is one page of a list.
type Page struct {
	Items []Object
	Next  string // for From; empty on the last page
}

// Get returns one object.
func Get(key Key) (Object, error) { return object("get "+key.String(), keyed("get", key)) }

// List returns one page; by default of all namespaces, with up to 100 objects.
func List(apiVersion, kind string, options ...Option) (Page, error) {
	request := map[string]any{"op": "list", "apiVersion": apiVersion, "kind": kind}
	answer, err := Call("list "+kind, request, options...)
	return Page{answer.Items, answer.Continue}, err
}

// Create creates an object.
func Create(wanted Object) (Object, error) { return write("create", wanted, nil) }

// Apply is server-side apply: this controller becomes the manager of exactly the fields of wanted.
func Apply(wanted Object, options ...Option) (Object, error) { return write("apply", wanted, options) }

// Update replaces an object. It has the resourceVersion of its last read.
func Update(wanted Object, options ...Option) (Object, error) {
	return write("update", wanted, options)
}

// MergePatch changes fields; nil removes a field.
func MergePatch(key Key, patch Object, options ...Option) (Object, error) {
	return object("patch "+key.String(), keyed("patch", key), append(options, field("type", "merge"), field("patch", patch))...)
}

// JSONPatch applies all of these operations, or none.
func JSONPatch(key Key, operations []Object, options ...Option) (Object, error) {
	return object("patch "+key.String(), keyed("patch", key), append(options, field("type", "json"), field("patch", operations))...)
}

// Delete deletes an object.
func Delete(key Key, options ...Option) error {
	_, err := Call("delete "+key.String(), keyed("delete", key), options...)
	return err
}

// An EventType is the type of a Kubernetes Event.
type EventType string

const (
	Normal  EventType = "Normal"
	Warning EventType = "Warning"
)

// RecordEvent records a Kubernetes Event about an object; reason is one word in CamelCase.
func RecordEvent(regarding Object, eventType EventType, reason, message string) error {
	reference := map[string]any{}
	key := regarding.Key()
	reference["apiVersion"], reference["kind"], reference["name"] = key.APIVersion, key.Kind, key.Name
	if key.Namespace != "" {
		reference["namespace"] = key.Namespace
	}
	if uid, ok := regarding.String("metadata", "uid"); ok {
		reference["uid"] = uid
	}
	_, err := Call("event about "+key.String(), map[string]any{
		"op": "event", "regarding": reference, "type": eventType, "reason": reason, "message": message,
	})
	return err
}

// An Answer is the answer of the host to a successful request.
type Answer struct {
	Object   Object
	Items    []Object
	Continue string
}

// Call sends any request of the ABI, also one without a function in this package. Its error is an *Error, which begins
// with operation.
func Call(operation string, request map[string]any, options ...Option) (Answer, error) {
	for _, option := range options {
		option(request)
	}
	text, err := json.Marshal(request)
	if err != nil {
		return Answer{}, &Error{operation, 0, "InvalidRequest", err.Error()}
	}
	var said struct {
		Answer
		Error *struct {
			Code            int
			Reason, Message string
		}
	}
	if err := decode(callHost(text), &said); err != nil {
		return Answer{}, &Error{operation, 0, "BadAnswer", err.Error()}
	}
	if said.Error != nil {
		return Answer{}, &Error{operation, said.Error.Code, said.Error.Reason, said.Error.Message}
	}
	return said.Answer, nil
}

func keyed(verb string, key Key) map[string]any {
	request := map[string]any{"op": verb, "apiVersion": key.APIVersion, "kind": key.Kind, "name": key.Name}
	if key.Namespace != "" {
		request["namespace"] = key.Namespace
	}
	return request
}

func object(operation string, request map[string]any, options ...Option) (Object, error) {
	answer, err := Call(operation, request, options...)
	return answer.Object, err
}

func write(verb string, wanted Object, options []Option) (Object, error) {
	return object(verb+" "+wanted.Key().String(), map[string]any{"op": verb, "object": wanted}, options...)
}
