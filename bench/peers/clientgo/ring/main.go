// A member of a ring as an ordinary controller on client-go, for bench/controllers/ring.py: what a team would deploy.
//
// In: the path of a kubeconfig, a namespace, its number, the name of the next ConfigMap. It watches the ConfigMap with
// the label ring=<number>, and when that has a newer data.nonce the next one gets it. Out: nothing; it runs until killed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	kubeconfig, namespace, number, next := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	check(err)
	client, err := kubernetes.NewForConfig(config)
	check(err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 10*time.Minute, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "ring=" + number }))
	informer := factory.Core().V1().ConfigMaps()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { queue.Add(object.(*corev1.ConfigMap).Name) },
		UpdateFunc: func(_, object any) { queue.Add(object.(*corev1.ConfigMap).Name) },
	})
	check(err)
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
	for {
		name, _ := queue.Get()
		if err := passOn(client, informer.Lister().ConfigMaps(namespace).Get, name, next); err != nil {
			fmt.Fprintln(os.Stderr, err)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

func passOn(client *kubernetes.Clientset, get func(string) (*corev1.ConfigMap, error), name, next string) error {
	mine, err := get(name)
	if err != nil {
		return err
	}
	nonce, err := strconv.Atoi(mine.Data["nonce"])
	if err != nil {
		return nil // none yet
	}
	maps := client.CoreV1().ConfigMaps(mine.Namespace)
	other, err := maps.Get(context.Background(), next, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if old, err := strconv.Atoi(other.Data["nonce"]); err == nil && old >= nonce {
		return nil
	}
	wanted := applycorev1.ConfigMap(next, mine.Namespace).WithData(map[string]string{"nonce": mine.Data["nonce"]})
	_, err = maps.Apply(context.Background(), wanted, metav1.ApplyOptions{FieldManager: "ring", Force: true})
	return err
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
