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

// editsJSONL is the log of edits. Its last line declares the frames that were copied into the
// videos because others need them, and that no row shows.
const editsJSONL = "meta/edits.jsonl"

// hiddenFrames gives what is declared: camera → episode → frames before and behind its own.
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
		// a log that cannot be read declares nothing: the frames are found as they are
		_ = json.Unmarshal(b[bytes.LastIndexByte(b, '\n')+1:], &line)
	} else if ctx.Err() != nil {
		return nil
	}
	if line.Hidden == nil {
		line.Hidden = map[string]map[string][2]int{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hidden = line.Hidden
	return d.hidden
}

// declared places the episodes of a file where the declared hidden frames leave them; false where
// these do not account for the file's frames.
func (d *Dataset) declared(ctx context.Context, c *camera, f *camFile, ix *video.Index) bool {
	hidden := d.hiddenFrames(ctx)[c.key]
	at, all := 0, 0
	placed := make([]shown, len(f.shown))
	for i, s := range f.shown {
		h := hidden[strconv.FormatInt(d.eps.id(int(s.episode)), 10)]
		if h[0] < 0 || h[1] < 0 || h[0]+h[1] > ix.NumFrames() {
			return false
		}
		s.first, all = int32(at+h[0]), all+h[0]+h[1]
		placed[i] = s
		at += h[0] + int(d.eps.length[s.episode]) + h[1]
	}
	if all == 0 || at != ix.NumFrames() {
		return false
	}
	copy(f.shown, placed)
	d.notice(robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "hidden-frames",
		Where:    robocache.Where{"file": f.path, "stream": c.key},
		Count:    int64(all),
		Message: fmt.Sprintf(
			"%d frames that no row shows: an edit cut inside groups of frames, and copied what others of them need",
			all,
		),
		Hint: robocache.Command("edit reencode") + " leaves them out",
	})
	return true
}
