package lerobot

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
)

// preparedEpisode is what was made of an episode before its turn.
type preparedEpisode struct {
	parts map[string]*encodedPart
	notes []preparedNote
}

type preparedNote struct {
	Code string `json:"code"`
	Key  string `json:"key"`
	Text string `json:"text"`
}

func (p *preparedEpisode) note(code, key, text string) {
	p.notes = append(p.notes, preparedNote{code, key, text})
}

// Prepare does what of an episode takes long and needs no turn: it encodes the cameras that come as pixels, and looks at still pictures.
// AddEpisode then takes the result. It may be called by several goroutines, beside AddEpisode; n names the episode, no two alike.
// An episode that is prepared and not added is given to Forget.
func (w *Writer) Prepare(ctx context.Context, ep *EpisodeData, n int) error {
	if err := w.check(ep); err != nil {
		return err
	}
	return w.prepare(ctx, ep, n)
}

func (w *Writer) prepare(ctx context.Context, ep *EpisodeData, n int) error {
	p := &preparedEpisode{parts: map[string]*encodedPart{}}
	if ep.Pictures == nil {
		ep.Pictures = map[string]*stats.Pixels{}
	}
	ep.prepared = p
	for i := range w.feats {
		f := &w.feats[i]
		var err error
		switch src := ep.Videos[f.Key]; {
		case f.Kind == robocache.KindImage && ep.Pictures[f.Key] == nil:
			err = w.lookAtStills(f, ep, p)
		case f.Kind == robocache.KindVideo && src.Library == nil:
			var part *encodedPart
			if part, err = w.encode(ctx, w.cams[f.Key], src, ep.Length, n, ep.Pictures[f.Key], p); err == nil {
				p.parts[f.Key] = part
			}
		}
		if err != nil {
			w.Forget(ep)
			return robocache.At(err, robocache.Where{"stream": f.Key})
		}
	}
	return nil
}

// Forget removes what Prepare made of an episode that is not added.
func (w *Writer) Forget(ep *EpisodeData) {
	if ep.prepared == nil {
		return
	}
	for _, p := range ep.prepared.parts {
		w.closeTemp([]cameraPart{p.cameraPart})
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

// keptPart lies beside an encoded episode in PartsDir, written last: what a later run needs of it besides the file.
type keptPart struct {
	Rows     int            `json:"rows"`
	Size     int64          `json:"size"`
	Pictures *stats.Pixels  `json:"pictures,omitempty"`
	Notes    []preparedNote `json:"notes,omitempty"`
}

func (w *Writer) keep(part *encodedPart, rows int, notes []preparedNote) error {
	file := filepath.Join(w.temp, part.path)
	st, err := os.Stat(file)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": file})
	}
	b, err := json.Marshal(keptPart{Rows: rows, Size: st.Size(), Pictures: part.look, Notes: notes})
	if err == nil {
		if err = os.WriteFile(file+".tmp", b, 0o644); err == nil {
			err = os.Rename(file+".tmp", file+".json")
		}
	}
	return robocache.At(err, robocache.Where{"file": file + ".json"})
}

// kept takes over what an interrupted run encoded.
func (w *Writer) kept(part *encodedPart, rows int, f *robocache.Feature, p *preparedEpisode) (bool, error) {
	file := filepath.Join(w.temp, part.path)
	b, err := os.ReadFile(file + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, robocache.At(err, robocache.Where{"file": file + ".json"})
	}
	old := keptPart{Pictures: stats.PicturesOf(f)}
	st, err := os.Stat(file)
	if err != nil || json.Unmarshal(b, &old) != nil || old.Rows != rows || old.Size != st.Size() {
		return false, nil // made again
	}
	if part.look == nil {
		part.look = old.Pictures
	}
	p.notes = append(p.notes, old.Notes...)
	return true, nil
}
