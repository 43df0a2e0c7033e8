package loader

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// EpisodeID is a key that is available for any dataset: the index of the sample's episode, as text.
const EpisodeID = "episode_id"

// generatedKeys are keys that any dataset has where they are asked for, of the names of LeRobot's columns: the number of the row among those of all episodes (with hz
// or an anchor: of the sample, as Locate takes it), the recording's number of its episode, and the number of the row in it.
var generatedKeys = []string{"index", "episode_index", "frame_index"}

// generated are the columns that the dataset does not have and that are made: the task's text, and what keys asks for.
func (src *source) generated() (extra []*column) {
	info, keys := src.ds.Info(), src.cfg.Keys
	if info.Feature("task") == nil && (len(info.Tasks) > 0 || info.Feature("task_index") != nil) {
		c := &column{key: "task"}
		c.kind = &textColumn{column: c}
		extra = append(extra, c)
	}
	if info.Feature(EpisodeID) == nil && slices.Contains(keys, EpisodeID) {
		c := &column{key: EpisodeID}
		c.kind = &episodeIDColumn{column: c}
		extra = append(extra, c)
	}
	for _, k := range generatedKeys {
		if info.Feature(k) == nil && slices.Contains(keys, k) {
			f := &robocache.Feature{Key: k, Kind: robocache.KindNumeric, DType: robocache.Int64, Shape: []int{1}, Default: true}
			c := &column{key: k, feature: f, value: value{stored: robocache.Int64, out: robocache.Int64, elems: 1, rowBytes: 8, outBytes: 8}}
			c.kind = &countColumn{column: c}
			extra = append(extra, c)
		}
	}
	return extra
}
