package calvin

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Origin returns the files of an episode: those of its frames, from the first to the last.
func (d *Dataset) Origin(_ context.Context, episode int) (*robocache.Origin, error) {
	if episode < 0 || episode >= len(d.eps) {
		return nil, nil
	}
	e := d.eps[episode]
	o := &robocache.Origin{File: d.name(e, 0)}
	if e.last > e.first {
		o.LastFile = d.name(e, int(e.rows()-1))
	}
	return o, nil
}
