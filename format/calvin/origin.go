package calvin

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Origin returns the files of an episode: those of its frames, from the first to the last.
func (d *Dataset) Origin(_ context.Context, episode int) (*robocache.Origin, error) {
	if episode < 0 || episode >= len(d.episodes) {
		return nil, nil
	}
	e := d.episodes[episode]
	o := &robocache.Origin{File: d.frameName(e, 0)}
	if e.last > e.first {
		o.LastFile = d.frameName(e, int(e.rows()-1))
	}
	return o, nil
}
