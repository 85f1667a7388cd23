//go:build !wasm

package controller

import (
	"crypto/rand"
	"fmt"
	"os"
	"time"
)

// Host answers requests to Kubernetes where there is no host: set it in tests of a controller, with `go test`.
var Host func(request []byte) []byte

var started = time.Now()

func callHost(request []byte) []byte {
	if Host == nil {
		panic("there is no host outside WebAssembly: set controller.Host first")
	}
	return Host(request)
}

func logHost(level int32, text string) { fmt.Fprintln(os.Stderr, level, text) }

// Monotonic is nanoseconds of a clock that never goes back.
func Monotonic() int64 { return int64(time.Since(started)) }

// Now is nanoseconds since 1970.
func Now() int64 { return time.Now().UnixNano() }

// Random fills with random bytes.
func Random(bytes []byte) { _, _ = rand.Read(bytes) }

// Requeue does nothing here.
func Requeue(int64) {}
