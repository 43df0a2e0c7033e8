package lerobot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// editsJSONL is the log of edits. Its last line declares hidden frames, which were copied into the
// videos because other frames depend on them, but which no row shows.
const editsJSONL = "meta/edits.jsonl"

// hiddenFrames returns the declared frames: camera → episode → number of frames before and after
// those of the episode.
func (d *Dataset) hiddenFrames(ctx context.Context) map[string]map[string][2]int {
	d.mu.Lock()
	known := d.hidden
	d.mu.Unlock()
	if known != nil {
		return known
	}
	var line struct {
		Hidden map[string]map[string][2]int `json:"hidden"`
	}
	if b, err := store.ReadFile(ctx, d.Bytes, editsJSONL, maxJSON); err == nil {
		b = bytes.TrimSpace(b)
		lastLine := b[bytes.LastIndexByte(b, '\n')+1:]
		// An invalid log declares nothing; frames are then counted as they are.
		_ = json.Unmarshal(lastLine, &line)
	} else if ctx.Err() != nil {
		return nil // not kept in d.hidden, so the next call reads the log
	}
	if line.Hidden == nil {
		line.Hidden = map[string]map[string][2]int{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hidden = line.Hidden
	return d.hidden
}

// placeHidden places the episodes of a file between the declared hidden frames. It returns false if
// these do not explain the number of frames.
func (d *Dataset) placeHidden(ctx context.Context, c *camera, f *camFile, ix *video.Index) bool {
	hidden := d.hiddenFrames(ctx)[c.key]
	nextFrame, hiddenCount := 0, 0
	placed := make([]shown, len(f.episodes))
	for i, s := range f.episodes {
		// The numbers of hidden frames before and after those of the episode.
		around := hidden[strconv.FormatInt(d.episodes.indexAt(int(s.episode)), 10)]
		if around[0] < 0 || around[1] < 0 || around[0]+around[1] > ix.NumFrames() {
			return false
		}
		s.first = int32(nextFrame + around[0])
		hiddenCount += around[0] + around[1]
		placed[i] = s
		nextFrame += around[0] + int(d.episodes.length[s.episode]) + around[1]
	}
	if hiddenCount == 0 || nextFrame != ix.NumFrames() {
		return false
	}
	copy(f.episodes, placed)
	d.noticeOnce(robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "hidden-frames",
		Where:    robocache.Where{"file": f.path, "stream": c.key},
		Count:    int64(hiddenCount),
		Message: fmt.Sprintf(
			"%d frames that no row shows: an edit cut inside groups of frames and copied "+
				"frames that others depend on",
			hiddenCount,
		),
		Hint: robocache.Command("edit reencode") + " removes them",
	})
	return true
}
