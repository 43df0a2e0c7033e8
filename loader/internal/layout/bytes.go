package layout

import (
	"fmt"
)

// FormatMiB returns n bytes as text in MiB with one decimal.
func FormatMiB(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
