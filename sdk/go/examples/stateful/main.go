// Counts its calls, to show that a suspension loses no state: a controller for tests and measurements.
//
// In: objects of any kind; config {"bytes": N}, the size of additional memory. Out: a ConfigMap "<name>-seen" beside
// each object, with the number of calls and the objects of all calls. A cold start begins with an empty table; a new
// version takes over the state that the former one saved. The table belongs to a goroutine that waits for a timer
// between two calls.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"trellis.dev/controller"
)

type stateful struct {
	calls     int64
	lastClock int64
	lastTime  time.Time
	filler    []byte
	names     chan string
	tables    chan map[string]int64
}

// keep owns the table: it receives a name and returns a copy of the table. The timer never fires.
func (s *stateful) keep(table map[string]int64) {
	idle := time.NewTimer(time.Hour)
	for {
		select {
		case name := <-s.names:
			if name != "" {
				table[name]++
			}
			known := make(map[string]int64, len(table))
			for name, times := range table {
				known[name] = times
			}
			s.tables <- known
			idle.Reset(time.Hour)
		case <-idle.C:
			controller.Warningf("an hour has passed since the last call")
		}
	}
}

func (s *stateful) begin(start controller.Start, table map[string]int64) error {
	if value, ok := start.Config["bytes"]; ok {
		text, _ := value.(json.Number)
		bytes, ok := controller.ParseNumber(text.String())
		if !ok || bytes > math.MaxInt32 {
			return errors.New("config.bytes is no whole number from 0 to 2147483647")
		}
		s.filler = make([]byte, bytes)
	}
	for at := range s.filler {
		s.filler[at] = byte(at % 251)
	}
	s.names, s.tables = make(chan string), make(chan map[string]int64)
	s.lastTime = time.Now()
	go s.keep(table)
	return nil
}

func (s *stateful) Start(start controller.Start) error { return s.begin(start, map[string]int64{}) }

func (s *stateful) Migrate(start controller.Start, from controller.Saved) error {
	var state struct {
		Calls int64
		Seen  map[string]int64
	}
	if err := from.State.Into(&state); err != nil {
		return err
	}
	if state.Seen == nil {
		state.Seen = map[string]int64{}
	}
	s.calls = state.Calls
	return s.begin(start, state.Seen)
}

func (s *stateful) Save() (any, error) {
	s.names <- ""
	return map[string]any{"calls": s.calls, "seen": <-s.tables}, nil
}

func (s *stateful) Reconcile(request controller.Request) (controller.Result, error) {
	// The clock of the Go runtime, for its timers, and that of the host.
	clock, now := controller.Monotonic(), time.Now()
	forward := clock >= s.lastClock && now.Sub(s.lastTime) >= 0
	s.lastClock, s.lastTime = clock, now
	time.Sleep(time.Millisecond)
	s.calls++
	s.names <- request.Key.Name
	report := controller.Object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": request.Key.Namespace, "name": request.Key.Name + "-seen"},
		"data": map[string]any{
			"calls": strconv.FormatInt(s.calls, 10), "seen": written(<-s.tables),
			"memory": word(s.whole(), "whole", "damaged"), "clock": word(forward, "forward", "backward"),
		},
	}
	_, err := controller.Apply(report, controller.Force())
	return controller.Result{}, err
}

func (s *stateful) whole() bool {
	for at, value := range s.filler {
		if value != byte(at%251) {
			return false
		}
	}
	return true
}

func word(yes bool, ifYes, ifNo string) string {
	if yes {
		return ifYes
	}
	return ifNo
}

// written returns the table as JSON, by name.
func written(table map[string]int64) string {
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	for at, name := range names {
		quoted, _ := json.Marshal(name)
		names[at] = fmt.Sprintf("%s: %d", quoted, table[name])
	}
	return "{" + strings.Join(names, ", ") + "}"
}

func init() { controller.Register(&stateful{}) }

func main() {}
