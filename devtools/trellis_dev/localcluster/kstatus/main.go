// Computes the status of Kubernetes objects as Flux and Helm do, with their library kstatus.
// Input: a JSON list of objects on standard input. Output: a JSON list with their status and message, in this order.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type result struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	results := make([]result, 0, len(objects))
	for _, object := range objects {
		found := &unstructured.Unstructured{}
		if err := found.UnmarshalJSON(object); err != nil {
			return fmt.Errorf("read object: %w", err)
		}
		computed, err := status.Compute(found)
		if err != nil {
			return fmt.Errorf("%s %s: %w", found.GetKind(), found.GetName(), err)
		}
		results = append(results, result{string(computed.Status), computed.Message})
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}
