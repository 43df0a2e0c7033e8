package layout

import (
	"fmt"
)

func FormatMiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
