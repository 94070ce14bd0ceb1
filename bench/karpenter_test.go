//go:build test_performance

// Compiled into the package of Karpenter's own scheduling benchmark by `bench.karpenter`, whose
// helpers make the pods, the 400 instance types and the scheduler. Prints one JSON object: what
// the pods ask for, seconds of one Solve, nodes, and what the cheapest type left for each costs.

package scheduling_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"
)

func TestBesideFleet(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("FLEET_BENCH_PODS"))
	if err != nil {
		t.Fatal(err)
	}
	pods := makeGenericPods(count)
	if os.Getenv("FLEET_BENCH_ALONE") != "" {
		pods = makePodAntiAffinityPods(count, corev1.LabelHostname)
	}
	asks := map[[2]int64]int{}
	for _, pod := range pods {
		asked := pod.Spec.Containers[0].Resources.Requests
		asks[[2]int64{asked.Cpu().MilliValue(), asked.Memory().Value() >> 20}]++
	}
	ctx = options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), test.Options())
	scheduler, err := setupScheduler(ctx, pods, scheduling.NumConcurrentReconciles(5))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	results, err := scheduler.Solve(ctx, pods)
	seconds := time.Since(began).Seconds()
	if err != nil || len(results.PodErrors) > 0 {
		t.Fatal(err, len(results.PodErrors))
	}
	cost := 0.0
	for _, node := range results.NewNodeClaims {
		least := math.Inf(1)
		for _, kind := range node.InstanceTypeOptions {
			for _, offering := range kind.Offerings.Available() {
				least = math.Min(least, offering.Price)
			}
		}
		cost += least
	}
	groups := [][3]int64{}
	for ask, each := range asks {
		groups = append(groups, [3]int64{ask[0], ask[1], int64(each)})
	}
	told, err := json.Marshal(map[string]any{
		"seconds": seconds, "machines": len(results.NewNodeClaims), "hourly": cost, "asks": groups,
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("bench:%s\n", told)
}
