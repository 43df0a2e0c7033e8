package lerobot

import (
	"context"
	"math"
)

// VideoStart is the time in its mp4 at which the metadata says that an episode's frames begin, in ns; ok is false where it says
// nothing. Frames are not found by it: it is for who wants the reference's check of times.
func (d *Dataset) VideoStart(ctx context.Context, episode int, key string) (ns int64, ok bool, err error) {
	v, err := d.EpisodeVideo(ctx, episode, key)
	if err != nil || math.IsNaN(v.From) || math.Abs(v.From) > 4e9 {
		return 0, false, err
	}
	return int64(math.RoundToEven(v.From * 1e9)), true, nil
}
