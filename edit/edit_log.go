package edit

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

// Edit is a line of meta/edits.jsonl. It records how the dataset was made from others. It holds no
// time, so that the same edit gives the same bytes.
type Edit struct {
	Edit    int       `json:"edit"` // version of this record
	Verbs   []Verb    `json:"verbs"`
	Sources []EditOf  `json:"sources"`
	FPS     string    `json:"fps"`
	Cut     string    `json:"cut,omitempty"`
	Rows    []CutRows `json:"rows,omitempty"` // rows of the trimmed episodes
	// Hidden holds the numbers of video frames that no row refers to, by camera and episode: those
	// before and those after the frames of the episode.
	Hidden map[string]map[string][2]int `json:"hidden,omitempty"`
}

// EditOf identifies a source of an edit and its episodes.
type EditOf struct {
	Format      string `json:"format"`
	Fingerprint string `json:"fingerprint"`
	// Episodes are the source indices of the result's episodes, in order: "0:3,4:50".
	Episodes string `json:"episodes"`
}

// CutRows identifies the rows [From, To) of the source episode that a trimmed episode has.
type CutRows struct {
	Episode int `json:"episode_index"`
	From    int `json:"from"`
	To      int `json:"to"`
}

// editLine returns the line that the result adds to meta/edits.jsonl.
func (v *planDataset) editLine(r *write.Report) ([]byte, error) {
	line := Edit{Edit: 1, Verbs: v.plan.Verbs, FPS: v.plan.FPS.String(), Cut: v.plan.Cut}
	numbers := make([][]int, len(v.srcs))
	for i, p := range v.plan.Episodes {
		numbers[p.Source] = append(
			numbers[p.Source],
			int(v.srcs[p.Source].Info().EpisodeIndex(p.Episode)),
		)
		if !v.hasAllRows(&p) {
			line.Rows = append(line.Rows, CutRows{i, p.From, p.To})
		}
	}
	for i, s := range v.plan.Sources {
		source := EditOf{s.Format, s.Fingerprint, robocache.Spans(numbers[i])}
		line.Sources = append(line.Sources, source)
	}
	if r != nil {
		for _, m := range r.Episodes {
			for key, h := range m.Hidden {
				if line.Hidden == nil {
					line.Hidden = map[string]map[string][2]int{}
				}
				if line.Hidden[key] == nil {
					line.Hidden[key] = map[string][2]int{}
				}
				line.Hidden[key][strconv.Itoa(m.New)] = h
			}
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(line); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
