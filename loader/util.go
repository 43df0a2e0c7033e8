package loader

import (
	"fmt"
)

// emptiedText names the episodes that drop_n_… left without a sample.
func emptiedText(episodes []int) string {
	if len(episodes) > 10 {
		return fmt.Sprintf("%d episodes are left without a sample: %v …", len(episodes), episodes[:10])
	}
	return fmt.Sprintf("episodes left without a sample: %v", episodes)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
