//go:build !wasm

package controller

import (
	"crypto/rand"
	"fmt"
	"os"
	"time"
)

// Host answers requests to Kubernetes in place of the host: set it in tests of a controller, with `go test`.
var Host func(request []byte) []byte

var started = time.Now()

func callHost(request []byte) []byte {
	if Host == nil {
		panic("there is no host outside WebAssembly: set controller.Host first")
	}
	return Host(request)
}

func logHost(level int32, text string) { fmt.Fprintln(os.Stderr, level, text) }

// Monotonic returns nanoseconds of a monotonic clock.
func Monotonic() int64 { return int64(time.Since(started)) }

// Now returns the nanoseconds since 1970.
func Now() int64 { return time.Now().UnixNano() }

// Random fills a buffer with random bytes.
func Random(bytes []byte) { _, _ = rand.Read(bytes) }

// Requeue does nothing here.
func Requeue(int64) {}
