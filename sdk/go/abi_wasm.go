package controller

import (
	"sync"
	"unsafe"
)

// The ABI: the functions of the module and of the host. Passed memory stays reachable from here until the next call, so
// the garbage collector does not free it.

const (
	abiVersion = 1
	keptRoom   = 64 << 10 // maximum size of the buffer that remains allocated after a large request
)

var (
	requestRoom []byte
	lastAnswer  []byte
	asking      sync.Mutex // the host stores one answer
)

//go:wasmimport trellis call
func hostCall(at unsafe.Pointer, length uint32) uint32

//go:wasmimport trellis take
func hostTake(at unsafe.Pointer)

//go:wasmimport trellis log
func hostLog(level int32, at unsafe.Pointer, length uint32)

//go:wasmimport trellis now
func hostNow() int64

//go:wasmimport trellis monotonic
func hostMonotonic() int64

//go:wasmimport trellis random
func hostRandom(at unsafe.Pointer, length uint32)

//go:wasmimport trellis requeue
func hostRequeue(milliseconds int64)

func callHost(request []byte) []byte {
	asking.Lock()
	defer asking.Unlock()
	length := hostCall(pointer(request), uint32(len(request)))
	answer := make([]byte, length)
	if length > 0 {
		hostTake(pointer(answer))
	}
	return answer
}

func logHost(level int32, text string) {
	hostLog(level, unsafe.Pointer(unsafe.StringData(text)), uint32(len(text)))
}

// Monotonic returns nanoseconds of a monotonic clock, which continues while the controller is suspended.
func Monotonic() int64 { return hostMonotonic() }

// Now returns the nanoseconds since 1970 of the host's clock; time.Now works, too.
func Now() int64 { return hostNow() }

// Random fills a buffer with random bytes; crypto/rand works, too.
func Random(bytes []byte) { hostRandom(pointer(bytes), uint32(len(bytes))) }

// Requeue requests a call for this key, as Result.RequeueAfter; the shorter time applies.
func Requeue(milliseconds int64) { hostRequeue(milliseconds) }

func pointer(bytes []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(bytes)) }

func packed(answer []byte) uint64 {
	lastAnswer = answer
	if len(answer) == 0 {
		return 0
	}
	return uint64(uintptr(pointer(answer)))<<32 | uint64(len(answer))
}

func request(length uint32) []byte { return requestRoom[:length] }

//go:wasmexport abi_version
func exportVersion() int32 { return abiVersion }

//go:wasmexport alloc
func exportAlloc(length uint32) unsafe.Pointer {
	if int(length) > cap(requestRoom) || cap(requestRoom) > keptRoom {
		requestRoom = make([]byte, max(length, 1))
	}
	requestRoom = requestRoom[:cap(requestRoom)]
	return pointer(requestRoom)
}

//go:wasmexport init
func exportInit(_, length uint32) uint64 { return packed(handleInit(request(length))) }

//go:wasmexport reconcile
func exportReconcile(_, length uint32) uint64 { return packed(handleReconcile(request(length))) }

//go:wasmexport save
func exportSave() uint64 { return packed(handleSave()) }

//go:wasmexport migrate
func exportMigrate(_, length uint32) uint64 { return packed(handleMigrate(request(length))) }
