package controller

import (
	"fmt"
	"time"
)

// The calls of the host without the transfer of bytes: texts of requests in, texts of results out. nil is {}.

type startRequest struct {
	Controller struct{ Namespace, Name string }
	Config     Object
	ConfigMaps map[string]map[string]string
	Secrets    map[string]map[string][]byte
	From       struct {
		SHA256 string
		State  Object
	}
}

type reconcileRequest struct {
	Key         Key
	Object      Object
	Attempt     int
	Traceparent string
}

func handleInit(text []byte) []byte {
	var request startRequest
	if err := decode(text, &request); err != nil {
		return answerError(unreadable(err))
	}
	return answerError(start(request))
}

func handleMigrate(text []byte) []byte {
	var request startRequest
	if err := decode(text, &request); err != nil {
		return answerError(unreadable(err))
	}
	if migrator, ok := registered.(Migrator); ok && len(request.From.State) > 0 {
		return answerError(migrator.Migrate(request.start(), Saved{request.From.SHA256, request.From.State}))
	}
	return answerError(start(request))
}

func start(request startRequest) error {
	if starter, ok := registered.(Starter); ok {
		return starter.Start(request.start())
	}
	return nil
}

func (r startRequest) start() Start {
	return Start{r.Controller.Namespace, r.Controller.Name, r.Config, r.ConfigMaps, r.Secrets}
}

func handleReconcile(text []byte) []byte {
	var request reconcileRequest
	if err := decode(text, &request); err != nil {
		return answerError(unreadable(err))
	}
	if registered == nil {
		return answerError(fmt.Errorf("no controller: call controller.Register in an init function"))
	}
	result, err := registered.Reconcile(Request(request))
	if err != nil {
		return answerError(err)
	}
	if result.RequeueAfter > 0 {
		milliseconds := (result.RequeueAfter + time.Millisecond - 1) / time.Millisecond
		return answer(map[string]any{"requeueAfter": float64(milliseconds) / 1000})
	}
	return nil
}

func handleSave() []byte {
	saver, ok := registered.(Saver)
	if !ok {
		return nil
	}
	state, err := saver.Save()
	if err != nil {
		Errorf("what this controller would save is lost: %v", err)
		return nil
	}
	return answer(state)
}

func unreadable(err error) error { return fmt.Errorf("the host's request cannot be read: %w", err) }

func answerError(err error) []byte {
	if err == nil {
		return nil
	}
	return answer(map[string]any{"error": err.Error()})
}

func answer(value any) []byte {
	text, err := encode(value)
	if err != nil {
		return answerError(fmt.Errorf("the controller's result is no JSON: %w", err))
	}
	return text
}
