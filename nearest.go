package robocache

import (
	"slices"
	"sort"
	"strings"
)

// Nearest returns a hint with at most three known names that are closest to an unknown one. If
// known names contain the unknown one, the hint lists only those. It is empty if no name is known.
func Nearest(name string, known []string) string {
	type scored struct {
		name string
		d    int
	}
	var all []scored
	for _, k := range known {
		d := EditDistance(name, k)
		if strings.Contains(k, name) || strings.HasSuffix(k, "."+name) {
			d = 0
		}
		all = append(all, scored{k, d})
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].d < all[j].d })
	if len(all) > 3 {
		all = all[:3]
	}
	if i := slices.IndexFunc(all, func(s scored) bool { return s.d > 0 }); i > 0 {
		all = all[:i]
	}
	if len(all) == 0 {
		return ""
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.name
	}
	return "nearest: " + strings.Join(names, ", ")
}

// EditDistance returns the Levenshtein distance of a and b.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
