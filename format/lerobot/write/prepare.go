package write

import (
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

// preparedEpisode is what was made of an episode before its turn.
type preparedEpisode struct {
	parts   map[string][2]*encodedPart // all frames of a camera, or the first of them; the last
	columns []preparedColumn           // of each feature
	notes   []preparedNote
}

type preparedNote struct {
	Code string `json:"code"`
	Key  string `json:"key"`
	Text string `json:"text"`
}

// Prepare does what of episodes takes long and needs no turn: it encodes columns and the cameras
// that come as pixels, and counts numbers and still images. AddEpisode then takes the result. It
// may be called by several goroutines, beside AddEpisode; n names the episodes, no two calls alike.
// The episodes of a call share one encoder a camera: to start one costs as much as a hundred small
// frames. What a camera of theirs looks like when encoded may depend on which are together. An
// episode that cannot be prepared has an error; one that is prepared and not added is given to
// Forget.
func (w *Writer) Prepare(ctx context.Context, eps []*EpisodeData, n int) []error {
	errs := make([]error, len(eps))
	for i, ep := range eps {
		errs[i] = crash.Func("write lerobot", func() error {
			if err := w.check(ep); err != nil {
				return err
			}
			ep.prepared = &preparedEpisode{
				parts:   map[string][2]*encodedPart{},
				columns: make([]preparedColumn, len(w.feats)),
			}
			if ep.FrameStats == nil {
				ep.FrameStats = map[string]*stats.Pixels{}
			}
			return w.prepareColumns(ctx, ep)
		})()
	}
	var made []*encodedGroup
	for _, key := range w.keys {
		groups := map[video.Codec]*encodedGroup{}
		to := func(codec video.Codec, how VideoConfig, ep *EpisodeData, i, part int) {
			g := groups[codec]
			if g == nil {
				g = &encodedGroup{w: w, camera: w.cams[key], video: how, n: n}
				if codec != "" {
					g.ends = "-" + string(codec)
				}
				groups[codec], made = g, append(made, g)
			}
			g.eps, g.at = append(g.eps, ep), append(g.at, [2]int{i, part})
		}
		for i, ep := range eps {
			p := ep.Videos[key]
			switch {
			case errs[i] != nil:
			case p.Library == nil:
				to("", w.cfg.Video, ep, i, 0)
			default:
				for part, end := range p.Ends {
					if end.N > 0 { // its frames were counted with those that are copied
						to(
							end.Codec,
							w.cfg.Video.like(end.Codec),
							&EpisodeData{
								Length: end.N,
								Videos: map[string]VideoPart{key: {Frames: end.Frames}},
								FrameStats: map[string]*stats.Pixels{
									key: stats.AllFrames.Images(&w.cams[key].feature),
								},
							},
							i,
							part,
						)
					}
				}
			}
		}
	}
	var wg sync.WaitGroup
	for _, g := range made {
		wg.Go(func() { g.encode(ctx) })
	}
	wg.Wait()
	for _, g := range made {
		key := g.camera.feature.Key
		for j, at := range g.at {
			i := at[0]
			if g.errs[j] == nil {
				parts := eps[i].prepared.parts[key]
				parts[at[1]] = g.parts[j]
				eps[i].prepared.parts[key] = parts
				eps[i].prepared.notes = append(eps[i].prepared.notes, g.notes...)
			} else if errs[i] == nil {
				errs[i] = robocache.At(g.errs[j], robocache.Where{"stream": key})
			}
		}
	}
	for i, ep := range eps {
		if errs[i] != nil {
			w.Forget(ep)
		}
	}
	return errs
}

// prepareColumns makes the columns of an episode, but for those that follow from where it will
// stand.
func (w *Writer) prepareColumns(ctx context.Context, ep *EpisodeData) error {
	p := ep.prepared
	if err := w.columns(ctx, ep, p.columns, false); err != nil {
		return err
	}
	for i := range w.feats {
		switch c := &p.columns[i]; {
		case c.look != nil:
			ep.FrameStats[w.feats[i].Key] = c.look
		case c.note != "":
			p.notes = append(p.notes, preparedNote{"no-image-statistics", w.feats[i].Key, c.note})
		}
	}
	return nil
}

// Size is what an episode takes in memory, with what Prepare made of it.
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

// Forget removes what Prepare made of an episode that is not added.
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

// hear takes what preparing an episode noticed into the findings, in the episode's turn.
func (w *Writer) hear(notes []preparedNote) {
	for _, n := range notes {
		if n.Code == "codec-replaced" {
			if c := w.cams[n.Key]; c.told {
				continue
			} else {
				c.told = true
			}
		}
		w.find(robocache.SeverityInfo, n.Code, n.Key, w.written, n.Text, 0)
	}
}

// keptPart lies beside an encoded file in PartsDir, written last: what a later run needs of it
// besides the file.
type keptPart struct {
	Size     int64          `json:"size"`
	Episodes []keptEpisode  `json:"episodes"`
	Notes    []preparedNote `json:"notes,omitempty"`
}

type keptEpisode struct {
	From       int           `json:"from"`
	To         int           `json:"to"`
	FrameStats *stats.Pixels `json:"pictures,omitempty"`
}

func (g *encodedGroup) keep(file string) (err error) {
	defer robocache.LocateIn(&err, "file", file)
	stat, err := os.Stat(file)
	if err != nil {
		return err
	}
	k := keptPart{Size: stat.Size(), Notes: g.notes}
	for _, p := range g.parts {
		k.Episodes = append(k.Episodes, keptEpisode{p.from, p.to, p.look})
	}
	encoded, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", encoded, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file+".json")
}

// kept takes over what an interrupted run encoded.
func (g *encodedGroup) kept(file string) bool {
	b, err := os.ReadFile(file + ".json")
	if err != nil {
		return false // made again, and said then if it cannot be
	}
	old := keptPart{}
	for range g.eps {
		old.Episodes = append(
			old.Episodes,
			keptEpisode{FrameStats: g.w.cfg.Frames.Images(&g.camera.feature)},
		)
	}
	st, err := os.Stat(file)
	if err != nil || json.Unmarshal(b, &old) != nil || old.Size != st.Size() ||
		!slices.EqualFunc(
			old.Episodes,
			g.eps,
			func(e keptEpisode, ep *EpisodeData) bool { return e.To-e.From == ep.Length },
		) {
		return false
	}
	for j, e := range old.Episodes {
		p := g.part(j, e.From)
		if p.look == nil {
			p.look = e.FrameStats
		}
	}
	g.notes = old.Notes
	return true
}
