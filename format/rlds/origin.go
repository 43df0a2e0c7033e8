package rlds

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// sourceKey is the text of an episode that names the recording that it was made from
// (robocache.Origin, as JSON). It is empty if there is none.
const sourceKey = "episode_metadata.robocache_source"

// Origin returns the recording that an episode was made from, as its record states. If the record
// names none, Origin returns only the shard file of the episode.
func (d *Dataset) Origin(ctx context.Context, episode int) (_ *robocache.Origin, err error) {
	defer guard.Recover("rlds origin", &err)
	shard, _ := d.locateEpisode(episode)
	own := &robocache.Origin{File: d.shards[shard].name}
	if s, ok := d.byKey[sourceKey]; !ok || d.schema.leaves[s.leaf].coding != textual ||
		d.Len(episode) == 0 {
		return own, nil
	}
	texts, err := d.Text(ctx, sourceKey, []robocache.Row{{Episode: episode}})
	if err != nil {
		if robocache.Bad(err) {
			return own, nil // The error is reported when the rows are read.
		}
		return nil, err
	}
	if known := origin.Parse(texts[0]); known != nil {
		return known, nil
	}
	return own, nil
}
