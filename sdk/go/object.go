package controller

import (
	"bytes"
	"encoding/json"
)

// An Object is a Kubernetes object as JSON. Numbers are json.Number, which keeps all digits.
type Object map[string]any

// Get returns the value at a path of names, nil if there is none.
func (o Object) Get(path ...string) any {
	var at any = o
	for _, name := range path {
		switch fields := at.(type) {
		case Object:
			at = fields[name]
		case map[string]any:
			at = fields[name]
		default:
			return nil
		}
	}
	return at
}

// String returns the string at a path; false if there is none.
func (o Object) String(path ...string) (string, bool) {
	text, ok := o.Get(path...).(string)
	return text, ok
}

// List returns the objects in the array at a path.
func (o Object) List(path ...string) []Object {
	var found []Object
	items, _ := o.Get(path...).([]any)
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok {
			found = append(found, fields)
		}
	}
	return found
}

// Into decodes the object into a struct with json tags, such as the types of k8s.io/api.
func (o Object) Into(target any) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, target)
}

// Key returns the key of the object; fields that the object does not have are empty.
func (o Object) Key() Key {
	text := func(path ...string) string {
		found, _ := o.String(path...)
		return found
	}
	return Key{text("apiVersion"), text("kind"), text("metadata", "namespace"), text("metadata", "name")}
}

func decode(text []byte, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(target)
}

// encode writes JSON without escapes for HTML, so that error messages are readable.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(text.Bytes(), "\n"), nil
}
