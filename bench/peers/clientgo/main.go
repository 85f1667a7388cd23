// A watcher of Nodes on client-go's shared informer, for bench/watch.py.
//
// In: the path of a kubeconfig, and commands on standard input, one a line. Out: one JSON object a line.
//
//	list     start the informer; answers when every object was handed to the handler
//	relist   have it list again, as after a 410; answers when every object was handed over again
//	report   answer with the changes seen since the last report: node, time sent, time handled
//
// Times are nanoseconds since 1970 of this machine's clock. The client has its defaults; what it asks the server for
// (Accept) is part of the first answer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const annotation = "bench.trellis.dev/sent"

type change struct {
	node          string
	sent, handled int64
}

type watcher struct {
	client  *kubernetes.Clientset
	accept  atomic.Value
	handled atomic.Int64
	expired atomic.Bool
	// When the list was asked for: the reflector waits for up to two seconds before it lists again.
	listing atomic.Int64
	// Held while a watch is open, so that a forced list can end it.
	open watch.Interface
	lock sync.Mutex
	seen []change
}

type accepting struct {
	next http.RoundTripper
	seen *atomic.Value
}

func (a accepting) RoundTrip(request *http.Request) (*http.Response, error) {
	a.seen.Store(request.Header.Get("Accept"))
	return a.next.RoundTrip(request)
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check(err)
	w := &watcher{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return accepting{next, &w.accept} })
	w.client, err = kubernetes.NewForConfig(config)
	check(err)
	_, err = w.client.Discovery().ServerVersion()
	check(err)
	answer(map[string]any{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "list":
			began := time.Now()
			w.list()
			answer(map[string]any{"seconds": time.Since(began).Seconds(), "objects": w.handled.Load(), "accept": w.accept.Load()})
		case "relist":
			answer(map[string]any{"seconds": w.relist().Seconds()})
		case "report":
			answer(map[string]any{"seen": w.report()})
		}
	}
}

func (w *watcher) list() {
	nodes := w.client.CoreV1().Nodes()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			w.asked()
			return nodes.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if w.expired.Swap(false) {
				return nil, apierrors.NewResourceExpired("asked to list again")
			}
			if options.SendInitialEvents != nil {
				w.asked() // a list as a watch that begins with all objects
			}
			opened, err := nodes.Watch(ctx, options)
			w.lock.Lock()
			defer w.lock.Unlock()
			w.open = opened
			return opened, err
		},
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, w.client), &corev1.Node{}, 0, cache.Indexers{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.handled.Add(1) },
		UpdateFunc: w.updated,
	})
	check(err)
	go informer.Run(make(chan struct{}))
	for !registration.HasSynced() {
		time.Sleep(time.Millisecond)
	}
}

func (w *watcher) asked() {
	w.listing.CompareAndSwap(0, time.Now().UnixNano())
}

func (w *watcher) updated(before, after any) {
	now := time.Now().UnixNano()
	w.handled.Add(1)
	node := after.(*corev1.Node)
	value := node.Annotations[annotation]
	if value == "" || value == before.(*corev1.Node).Annotations[annotation] {
		return
	}
	sent, err := strconv.ParseInt(value, 10, 64)
	check(err)
	w.lock.Lock()
	defer w.lock.Unlock()
	w.seen = append(w.seen, change{node.Name, sent, now})
}

func (w *watcher) relist() time.Duration {
	objects := w.handled.Swap(0)
	w.listing.Store(0)
	w.expired.Store(true)
	w.lock.Lock()
	w.open.Stop()
	w.lock.Unlock()
	for w.handled.Load() < objects {
		time.Sleep(time.Millisecond)
	}
	return time.Since(time.Unix(0, w.listing.Load()))
}

func (w *watcher) report() [][3]any {
	w.lock.Lock()
	defer w.lock.Unlock()
	rows := make([][3]any, 0, len(w.seen))
	for _, c := range w.seen {
		rows = append(rows, [3]any{c.node, c.sent, c.handled})
	}
	w.seen = nil
	return rows
}

func answer(what map[string]any) {
	line, err := json.Marshal(what)
	check(err)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
