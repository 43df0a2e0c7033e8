package delta

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Origin returns the recording that an episode was made from, as its first row states. If the row
// states none, Origin returns only the data file that holds the row.
func (d *Dataset) Origin(ctx context.Context, episode int) (_ *robocache.Origin, err error) {
	defer crash.Recover("delta origin", &err)
	first := []robocache.Row{{Episode: episode}}
	g, _, err := d.locateRow(first[0])
	if err != nil {
		return nil, nil // The episode does not exist or has no rows.
	}
	if d.source != nil {
		text := ""
		err := d.eachRow(ctx, d.source, "", first, func(_ int, k *chunk, row int) error {
			text = k.textAt(row)
			return nil
		})
		if err != nil && !robocache.Bad(err) {
			return nil, err
		}
		if known := origin.Parse(text); known != nil {
			return known, nil
		}
	}
	name, err := d.groups[g].name()
	if err != nil {
		return nil, err
	}
	return &robocache.Origin{File: name}, nil
}
