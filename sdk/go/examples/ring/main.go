// A member of a ring: if the ConfigMap that it watches has a newer data.nonce, it writes this to the next ConfigMap.
//
// In: ConfigMaps; config {"next": "ring-7"}, a name in the same namespace. Out: data.nonce of the next one, by
// apply. The last written value is cached, which saves a request; after a cold start, the controller reads the next
// one.
package main

import (
	"errors"
	"fmt"

	"trellis.dev/controller"
)

type ring struct {
	next     string
	passedOn int64
}

func (r *ring) Start(start controller.Start) error {
	next, ok := start.Config.String("next")
	if !ok {
		return errors.New("config.next is missing: the name of the next ConfigMap")
	}
	r.next = next
	return nil
}

func (r *ring) Reconcile(request controller.Request) (controller.Result, error) {
	done := controller.Result{}
	text, ok := request.Object.String("data", "nonce")
	if !ok || request.Key.Name == r.next {
		return done, nil
	}
	nonce, ok := controller.ParseNumber(text)
	if !ok {
		return done, fmt.Errorf("data.nonce is no whole number: %s", text)
	}
	if nonce <= r.passedOn {
		return done, nil
	}
	next := request.Key
	next.Name = r.next
	found, err := controller.Get(next)
	if err != nil && !errors.Is(err, controller.ErrNotFound) {
		return done, err
	}
	oldText, _ := found.String("data", "nonce")
	if old, ok := controller.ParseNumber(oldText); !ok || old < nonce {
		wanted := controller.Object{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": next.Namespace, "name": next.Name},
			"data":     map[string]any{"nonce": text},
		}
		if _, err := controller.Apply(wanted, controller.Force()); err != nil {
			return done, err
		}
	}
	r.passedOn = nonce
	return done, nil
}

func init() { controller.Register(&ring{passedOn: -1}) }

func main() {}
