package delta

import (
	"context"
)

// maxCountedGroups is the number of row groups whose lists are counted.
const maxCountedGroups = 16

// lengthOf returns the most common length of a column's lists, and the first one in a tie. It
// returns 0 if no row has a value. It counts the lists of some row groups, spread over the table.
func (d *Dataset) lengthOf(ctx context.Context, c *readColumn) (int, error) {
	rows := map[int]int{} // number of rows by length
	var order []int
	count := func(length, n int) {
		if length > 0 {
			if rows[length] == 0 {
				order = append(order, length)
			}
			rows[length] += n
		}
	}
	var groups []int
	for g := range d.groups {
		if leaf := d.leafOf(g, c, ""); leaf != nil && leaf.MaxRep == 1 {
			groups = append(groups, g)
		}
	}
	for k := range min(len(groups), maxCountedGroups) {
		g := groups[k*len(groups)/min(len(groups), maxCountedGroups)]
		col, err := d.readLeaf(ctx, g, d.leafOf(g, c, ""), nil)
		if err != nil {
			return 0, err
		}
		n := 0
		for i := range col.Entries {
			if col.Rep[i] == 0 {
				count(n, 1)
				n = 0
			}
			if col.Def == nil || int(col.Def[i]) == col.Leaf.MaxDef {
				n++
			}
		}
		count(n, 1)
	}
	best := 0
	for _, length := range order {
		if best == 0 || rows[length] > rows[best] {
			best = length
		}
	}
	return best, nil
}
