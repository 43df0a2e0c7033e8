package write

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// preparedEpisode is the result of Prepare for an episode.
type preparedEpisode struct {
	// [0]: all frames of a camera, or the first ones; [1]: the last ones
	parts   map[string][2]*encodedPart
	columns []preparedColumn // one per feature
	notes   []preparedNote
}

// preparedNote is a remark about the images of camera Key, which reportNotes turns into a finding.
type preparedNote struct {
	Code string `json:"code"`
	Key  string `json:"key"`
	Text string `json:"text"`
}

// Prepare does the expensive part of adding episodes, which does not depend on their order. It
// encodes columns and frames, and counts numbers and still images. AddEpisode then uses the result.
//
// Several goroutines may call it, also during AddEpisode. n names the episodes in temporary files;
// no two calls may use the same number.
//
// The episodes of a call share one encoder per camera, because starting one costs as much as a
// hundred small frames. The encoded bytes may depend on which episodes are in one call.
//
// The result has one error per episode. The caller must pass a prepared episode that it does not
// add to Forget.
func (w *Writer) Prepare(ctx context.Context, eps []*EpisodeData, n int) []error {
	errs := make([]error, len(eps))
	for i, ep := range eps {
		errs[i] = crash.Func("write lerobot", func() error {
			if err := w.checkEpisode(ep); err != nil {
				return err
			}
			ep.prepared = &preparedEpisode{
				parts:   map[string][2]*encodedPart{},
				columns: make([]preparedColumn, len(w.features)),
			}
			if ep.FrameStats == nil {
				ep.FrameStats = map[string]*stats.Pixels{}
			}
			return w.prepareColumns(ctx, ep)
		})()
	}
	var groups []*encodedGroup
	for _, key := range w.cameraKeys {
		groups = append(groups, w.groupFrames(key, eps, errs, n)...)
	}
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() { g.encodeAll(ctx) })
	}
	wg.Wait()
	for _, g := range groups {
		key := g.camera.feature.Key
		for j, target := range g.targets {
			if err := robocache.At(g.errs[j], robocache.Where{"stream": key}); err != nil {
				errs[target.episode] = cmp.Or(errs[target.episode], err)
				continue
			}
			prepared := eps[target.episode].prepared
			parts := prepared.parts[key]
			parts[target.part] = g.parts[j]
			prepared.parts[key] = parts
			prepared.notes = append(prepared.notes, g.notes...)
		}
	}
	for i, ep := range eps {
		if errs[i] != nil {
			w.Forget(ep)
		}
	}
	return errs
}

// groupFrames returns the frames of camera key that must be encoded, with one group per codec. An
// episode is encoded as a whole, or only at the two ends of a segment that is copied. Episodes with
// an error are skipped. n is the number of the first episode.
func (w *Writer) groupFrames(key string, eps []*EpisodeData, errs []error, n int) []*encodedGroup {
	var groups []*encodedGroup
	byCodec := map[video.Codec]*encodedGroup{}
	add := func(codec video.Codec, config VideoConfig, ep *EpisodeData, target encodedTarget) {
		g := byCodec[codec]
		if g == nil {
			g = &encodedGroup{writer: w, camera: w.cameras[key], video: config, number: n}
			if codec != "" {
				g.suffix = "-" + string(codec)
			}
			byCodec[codec] = g
			groups = append(groups, g)
		}
		g.episodes = append(g.episodes, ep)
		g.targets = append(g.targets, target)
	}
	for i, ep := range eps {
		if errs[i] != nil {
			continue
		}
		videoPart := ep.Videos[key]
		if videoPart.Library == nil {
			add("", w.cfg.Video, ep, encodedTarget{episode: i})
			continue
		}
		for part, end := range videoPart.Ends {
			if end.N == 0 {
				continue
			}
			frames := &EpisodeData{
				Length: end.N,
				Videos: map[string]VideoPart{key: {Frames: end.Frames}},
				// these frames were counted with the copied ones
				FrameStats: map[string]*stats.Pixels{
					key: stats.AllFrames.Images(&w.cameras[key].feature),
				},
			}
			target := encodedTarget{episode: i, part: part}
			add(end.Codec, w.cfg.Video.forCodec(end.Codec), frames, target)
		}
	}
	return groups
}

// prepareColumns encodes the columns of an episode, except those that depend on its position in the
// dataset.
func (w *Writer) prepareColumns(ctx context.Context, ep *EpisodeData) error {
	p := ep.prepared
	if err := w.prepareFeatures(ctx, ep, p.columns, false); err != nil {
		return err
	}
	for i := range w.features {
		c := &p.columns[i]
		switch {
		case c.pixels != nil:
			ep.FrameStats[w.features[i].Key] = c.pixels
		case c.note != "":
			p.notes = append(
				p.notes,
				preparedNote{"no-image-statistics", w.features[i].Key, c.note},
			)
		}
	}
	return nil
}

// Size returns the bytes that an episode occupies in memory, including the result of Prepare.
func (ep *EpisodeData) Size() (n int64) {
	for _, b := range ep.Columns {
		n += int64(len(b))
	}
	for _, rows := range ep.Images {
		for _, b := range rows {
			n += int64(len(b))
		}
	}
	for _, rows := range ep.Text {
		for _, s := range rows {
			n += int64(len(s))
		}
	}
	if ep.prepared == nil {
		return n
	}
	for i := range ep.prepared.columns {
		for _, c := range ep.prepared.columns[i].chunks {
			n += c.Held()
		}
	}
	return n
}

// Forget removes the result of Prepare from an episode that is not added.
func (w *Writer) Forget(ep *EpisodeData) {
	if ep.prepared == nil {
		return
	}
	for _, parts := range ep.prepared.parts {
		for _, p := range parts {
			if p != nil {
				w.closeTemp([]cameraPart{p.cameraPart})
			}
		}
	}
	ep.prepared = nil
}

// reportNotes turns the notes of a prepared episode into findings. It is called in the order of the
// episodes.
func (w *Writer) reportNotes(notes []preparedNote) {
	for _, n := range notes {
		if n.Code == "codec-replaced" {
			camera := w.cameras[n.Key]
			if camera.reportedReplacement {
				continue
			}
			camera.reportedReplacement = true
		}
		w.addFinding(robocache.SeverityInfo, n.Code, n.Key, w.written, n.Text, 0)
	}
}

// keptPart is stored with an encoded file in PartsDir. It is written last, and holds what a later
// run must know about the file.
type keptPart struct {
	Size     int64          `json:"size"`
	Episodes []keptEpisode  `json:"episodes"`
	Notes    []preparedNote `json:"notes,omitempty"`
}

// keptEpisode is the range of frames of an episode in a kept file, with the counts of their pixels.
type keptEpisode struct {
	From       int           `json:"from"`
	To         int           `json:"to"`
	FrameStats *stats.Pixels `json:"pictures,omitempty"`
}

// writeKept writes the keptPart of an encoded file.
func (g *encodedGroup) writeKept(file string) (err error) {
	defer robocache.LocateIn(&err, "file", file)
	stat, err := os.Stat(file)
	if err != nil {
		return err
	}
	kept := keptPart{Size: stat.Size(), Notes: g.notes}
	for _, p := range g.parts {
		kept.Episodes = append(kept.Episodes, keptEpisode{p.from, p.to, p.pixels})
	}
	encoded, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", encoded, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file+".json")
}

// reuseKept reports whether an interrupted run left this group encoded, and uses its parts.
func (g *encodedGroup) reuseKept(file string) bool {
	b, err := os.ReadFile(file + ".json")
	if err != nil {
		return false // The file is encoded again, which reports any error.
	}
	// Unmarshal adds to these counters, and rejects counts of another kind of image.
	old := keptPart{}
	for range g.episodes {
		old.Episodes = append(
			old.Episodes,
			keptEpisode{FrameStats: g.writer.cfg.Frames.Images(&g.camera.feature)},
		)
	}
	st, err := os.Stat(file)
	if err != nil || json.Unmarshal(b, &old) != nil || old.Size != st.Size() {
		return false
	}
	sameLength := func(e keptEpisode, ep *EpisodeData) bool { return e.To-e.From == ep.Length }
	if !slices.EqualFunc(old.Episodes, g.episodes, sameLength) {
		return false
	}
	for j, e := range old.Episodes {
		p := g.addPart(j, e.From)
		if p.pixels == nil {
			p.pixels = e.FrameStats
		}
	}
	g.notes = old.Notes
	return true
}
