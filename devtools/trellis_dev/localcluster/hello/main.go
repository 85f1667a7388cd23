// A WASI program that says so: what the canary pod of a real node runs.
package main

import "os"

func main() {
	_, err := os.Stdout.WriteString("hello from wasm\n")
	if err != nil {
		os.Exit(1)
	}
}
