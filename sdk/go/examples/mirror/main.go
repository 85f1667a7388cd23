// Copies ConfigMaps to another namespace, under the same name, and deletes a copy after its source was deleted.
//
// In: ConfigMaps; their copies, because only a copy shows a source that was deleted while the controller did not
// run; config {"targetNamespace": "copies", "selector": "app=shop"}, as `kubectl -l` accepts it; without a selector,
// all. Out: ConfigMaps in that namespace, with the annotation and the label below. Invariant: an object without this
// annotation for this source is never changed or deleted.
package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"trellis.dev/controller"
)

const (
	source = "examples.trellis.dev/mirror-of"
	from   = "examples.trellis.dev/mirrored-from" // namespace of the source, so that a watch can select its copies
)

var contents = []string{"data", "binaryData"}

type mirror struct{ target, selector string }

func (m *mirror) Start(start controller.Start) error {
	target, ok := start.Config.String("targetNamespace")
	if !ok {
		return errors.New("config.targetNamespace is missing: the namespace that mirrors go to")
	}
	m.target = target
	m.selector, _ = start.Config.String("selector")
	return nil
}

func (m *mirror) Reconcile(request controller.Request) (controller.Result, error) {
	if request.Key.Namespace == m.target {
		return controller.Result{}, m.bringBack(request.Key.Name, request.Object)
	}
	return controller.Result{}, m.bring(request.Key.Namespace, request.Key.Name, request.Object)
}

// bringBack evaluates the source that the annotation of a copy names; an object without it, or with another name, is
// unmanaged.
func (m *mirror) bringBack(name string, mirror controller.Object) error {
	madeFrom, _ := mirror.String("metadata", "annotations", source)
	namespace, named, _ := strings.Cut(madeFrom, "/")
	if named != name {
		return nil
	}
	only := []controller.Option{
		controller.InNamespace(namespace), controller.FieldSelector("metadata.name=" + name), controller.Limit(1),
	}
	if m.selector != "" {
		only = append(only, controller.LabelSelector(m.selector))
	}
	found, err := controller.List("v1", "ConfigMap", only...)
	if err != nil {
		return err
	}
	var object controller.Object
	if len(found.Items) > 0 {
		object = found.Items[0]
	}
	return m.bring(namespace, name, object)
}

// bring reconciles the copy of an object, also of a deleted one.
func (m *mirror) bring(namespace, name string, object controller.Object) error {
	key := controller.Key{APIVersion: "v1", Kind: "ConfigMap", Namespace: m.target, Name: name}
	found, err := controller.Get(key)
	if err != nil && !errors.Is(err, controller.ErrNotFound) {
		return err
	}
	if err != nil && object == nil {
		return nil
	}
	if err != nil {
		_, err = controller.Create(makeMirror(key, namespace, object))
		return err
	}
	return change(key, namespace, object, found)
}

// change makes the copy equal to the object, if there is one.
func change(key controller.Key, namespace string, object, found controller.Object) (err error) {
	madeFrom, _ := found.String("metadata", "annotations", source)
	ours := madeFrom == namespace+"/"+key.Name
	label, _ := found.String("metadata", "labels", from)
	switch {
	case !ours && object == nil:
	case !ours:
		return fmt.Errorf("%s is there already and is no mirror of %s/%s: rename one of the two", key, namespace, key.Name)
	case object == nil:
		return remove(key, found)
	case label == namespace && same(object, found):
	default:
		wanted := makeMirror(key, namespace, object)
		wanted["metadata"].(map[string]any)["resourceVersion"] = found.Get("metadata", "resourceVersion")
		_, err = controller.Update(wanted)
	}
	return err
}

// same compares data; missing data and {} are equal.
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

func makeMirror(key controller.Key, namespace string, object controller.Object) controller.Object {
	made := controller.Object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": key.Namespace, "name": key.Name,
			"labels":      map[string]any{from: namespace},
			"annotations": map[string]any{source: namespace + "/" + key.Name},
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
