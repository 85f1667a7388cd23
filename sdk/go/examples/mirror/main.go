// Mirrors ConfigMaps into another namespace, under the same name, and deletes a mirror when its source is gone.
//
// In: ConfigMaps; config {"targetNamespace": "copies"}. Out: ConfigMaps there, with the annotation below. Invariant: what
// does not have this annotation, with this source, is never changed and never deleted.
package main

import (
	"errors"
	"fmt"
	"reflect"

	"trellis.dev/controller"
)

const source = "examples.trellis.dev/mirror-of"

var contents = []string{"data", "binaryData"}

type mirror struct{ target string }

func (m *mirror) Start(start controller.Start) error {
	target, ok := start.Config.String("targetNamespace")
	if !ok {
		return errors.New("config.targetNamespace is missing: the namespace that mirrors go to")
	}
	m.target = target
	return nil
}

func (m *mirror) Reconcile(request controller.Request) (controller.Result, error) {
	if request.Key.Namespace == m.target {
		return controller.Result{}, nil // a mirror, or somebody else's
	}
	from := request.Key.Namespace + "/" + request.Key.Name
	key := controller.Key{APIVersion: "v1", Kind: "ConfigMap", Namespace: m.target, Name: request.Key.Name}
	found, err := controller.Get(key)
	if errors.Is(err, controller.ErrNotFound) {
		found = nil
	} else if err != nil {
		return controller.Result{}, err
	}
	return controller.Result{}, bring(key, from, request.Object, found)
}

// bring makes the mirror, if there is one, equal to the object, if there is one.
func bring(key controller.Key, from string, object, found controller.Object) (err error) {
	madeFrom, _ := found.String("metadata", "annotations", source)
	switch {
	case found == nil && object == nil:
	case found == nil:
		_, err = controller.Create(makeMirror(key, from, object))
	case madeFrom != from && object == nil:
	case madeFrom != from:
		return fmt.Errorf("%s is there already and is no mirror of %s: rename one of the two", key, from)
	case object == nil:
		return remove(key, found)
	case same(object, found):
	default:
		wanted := makeMirror(key, from, object)
		wanted["metadata"].(map[string]any)["resourceVersion"] = found.Get("metadata", "resourceVersion")
		_, err = controller.Update(wanted)
	}
	return err
}

// same: no data and {} are the same.
func same(left, right controller.Object) bool {
	for _, field := range contents {
		a, _ := left.Get(field).(map[string]any)
		b, _ := right.Get(field).(map[string]any)
		if len(a)+len(b) > 0 && !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return true
}

func makeMirror(key controller.Key, from string, object controller.Object) controller.Object {
	made := controller.Object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": key.Namespace, "name": key.Name, "annotations": map[string]any{source: from},
		},
	}
	for _, field := range contents {
		if value := object.Get(field); value != nil {
			made[field] = value
		}
	}
	return made
}

func remove(key controller.Key, found controller.Object) error {
	uid, _ := found.String("metadata", "uid")
	version, _ := found.String("metadata", "resourceVersion")
	err := controller.Delete(key, controller.UID(uid), controller.ResourceVersion(version))
	if errors.Is(err, controller.ErrNotFound) {
		return nil
	}
	return err
}

func init() { controller.Register(&mirror{}) }

func main() {}
