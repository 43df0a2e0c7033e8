package lerobot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/store"
)

const modalityPath = "meta/modality.json"

// Modality is GR00T's meta/modality.json: names for parts of features.
type Modality struct {
	State      map[string]Slice  `json:"state,omitempty"`
	Action     map[string]Slice  `json:"action,omitempty"`
	Video      map[string]string `json:"video,omitempty"`      // name → feature key
	Annotation map[string]string `json:"annotation,omitempty"` // name → column of task numbers
}

// Slice is a part of a feature's vector: elements Start to End−1.
type Slice struct {
	Key        string `json:"key"`
	Start, End int
}

// Modality returns the content of meta/modality.json, or nil if the file does not exist.
func (d *Dataset) Modality() *Modality { return d.modality }

// readModality reads meta/modality.json. A faulty file is a finding and is ignored.
func (d *Dataset) readModality(ctx context.Context) error {
	b, err := store.ReadFile(ctx, d.Bytes, modalityPath, maxJSON)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if b, err = checkJSON(modalityPath, b); err == nil {
		d.modality, err = parseModality(b, d.About)
	}
	if err != nil {
		d.addFinding(warningAt(
			"modality",
			modalityPath,
			"modality.json is not used: "+err.Error(),
			"fix it or remove it",
		))
		return nil
	}
	d.forgiveCameras()
	d.addFinding(robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "modality",
		Where:    robocache.Where{"file": modalityPath},
		Message: fmt.Sprintf(
			"GR00T's modality.json names %d parts of the state, %d of the action, %d videos, "+
				"%d annotations",
			len(d.modality.State),
			len(d.modality.Action),
			len(d.modality.Video),
			len(d.modality.Annotation),
		),
	})
	return nil
}

// forgiveCameras turns errors about cameras without files into warnings if modality.json does not
// name the camera. GR00T's own example datasets declare a misspelled camera in addition to the real
// one.
func (d *Dataset) forgiveCameras() {
	cameras := slices.Collect(maps.Values(d.modality.Video))
	for i := range d.About.Findings {
		f := &d.About.Findings[i]
		r := d.raw.declaration(f.NotDelivered)
		if r == nil || f.Severity != robocache.SeverityError {
			continue
		}
		if len(cameras) == 0 || slices.Contains(cameras, r.key) {
			continue
		}
		if declared, err := parseFeature(r); err == nil && declared.Kind == robocache.KindVideo {
			f.Severity = robocache.SeverityWarning
			f.Message += "; " + modalityPath + " does not name it either"
		}
	}
}

// parseModality parses modality.json and marks relative actions in info.
func parseModality(b []byte, info *robocache.Info) (*Modality, error) {
	var raw struct{ State, Action, Video, Annotation map[string]modalityPart }
	if err := jsonmeta.Unmarshal(string(op), b, &raw); err != nil {
		return nil, err
	}
	m := &Modality{Video: map[string]string{}, Annotation: map[string]string{}}
	for _, sliced := range []struct {
		parts map[string]modalityPart
		of    string
		to    *map[string]Slice
	}{{raw.State, "observation.state", &m.State}, {raw.Action, "action", &m.Action}} {
		*sliced.to = map[string]Slice{}
		for name, p := range sliced.parts {
			key := cmp.Or(p.Key, sliced.of)
			f := info.Feature(key)
			hasRange := p.Start != nil && p.End != nil && 0 <= *p.Start && *p.Start <= *p.End
			if f == nil || !hasRange || *p.End > f.Elements() {
				return nil, fmt.Errorf("%s: no such part of %s", name, key)
			}
			(*sliced.to)[name] = Slice{key, *p.Start, *p.End}
		}
	}
	for name, p := range raw.Video {
		m.Video[name] = cmp.Or(p.Key, "observation.images."+name)
	}
	for name, p := range raw.Annotation {
		m.Annotation[name] = cmp.Or(p.Key, "annotation."+name)
	}
	markRelative(info, raw.Action)
	return m, nil
}
