// A containerd shim that does not work: it ends with an error or never ends, always or only when a pod needs it.
package main

import (
	"os"
	"slices"
	"strings"
	"time"
)

// Set by the linker: "exits" or "hangs", and the arguments it answers all the same, with commas between.
var mode, answers string

func main() {
	for _, argument := range os.Args[1:] {
		if slices.Contains(strings.Split(answers, ","), argument) {
			os.Stdout.WriteString("containerd-shim-wasi-v1:\n  Version: 0.3.0\n")
			return
		}
	}
	if mode == "hangs" {
		time.Sleep(24 * time.Hour)
	}
	os.Stderr.WriteString("this shim is broken\n")
	os.Exit(1)
}
