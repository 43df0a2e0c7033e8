package lerobot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/store"
)

// modalityPath is GR00T's file that names the parts of the state and of the actions.
const modalityPath = "meta/modality.json"

// readModality reads meta/modality.json. A faulty file is a finding and is ignored.
func (d *Dataset) readModality(ctx context.Context) error {
	b, err := store.ReadFile(ctx, d.Bytes, modalityPath, maxJSON)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var groups []robocache.Group
	if b, err = checkJSON(modalityPath, b); err == nil {
		groups, err = parseModality(b, d.About)
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
	d.About.Groups = groups
	d.downgradeCameraErrors()
	counts := map[string]int{}
	for _, g := range groups {
		counts[g.Kind]++
	}
	d.addFinding(robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "modality",
		Where:    robocache.Where{"file": modalityPath},
		Message: fmt.Sprintf(
			"GR00T's modality.json names %d parts of the state, %d of the action, %d videos, "+
				"%d annotations",
			counts["state"],
			counts["action"],
			counts["video"],
			counts["annotation"],
		),
	})
	return nil
}

// downgradeCameraErrors turns errors about cameras without files into warnings if modality.json
// does not name the camera. GR00T's own example datasets declare a misspelled camera in addition to
// the real one.
func (d *Dataset) downgradeCameraErrors() {
	var cameras []string
	for _, g := range d.About.Groups {
		if g.Kind == "video" {
			cameras = append(cameras, g.Key)
		}
	}
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

// modalityKinds lists the kinds of groups and the stream of a group that names none. A name that
// ends in a dot is followed by the group's name.
var modalityKinds = []struct{ kind, stream string }{
	{"state", "observation.state"},
	{"action", "action"},
	{"video", "observation.images."},
	{"annotation", "annotation."},
}

// parseModality parses modality.json and marks relative actions in info.
func parseModality(b []byte, info *robocache.Info) (groups []robocache.Group, err error) {
	var parts map[string]map[string]modalityPart
	var members map[string]json.RawMessage
	if err := jsonmeta.Unmarshal(string(op), b, &members); err != nil {
		return nil, err
	}
	known := map[string]json.RawMessage{}
	for _, k := range modalityKinds {
		if v, ok := members[k.kind]; ok {
			known[k.kind] = v
		}
	}
	if b, err = json.Marshal(known); err != nil {
		return nil, err
	}
	if err := jsonmeta.Unmarshal(string(op), b, &parts); err != nil {
		return nil, err
	}
	for _, k := range modalityKinds {
		if len(parts[k.kind]) == 0 {
			continue
		}
		err := eachMember("/"+k.kind, known[k.kind], func(name string, _ json.RawMessage) error {
			g, err := parts[k.kind][name].newGroup(k.kind, name, k.stream, info)
			groups = append(groups, g)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	markRelative(info, parts["action"])
	return groups, nil
}

// newGroup returns the group that p describes. defaultKey is the stream of the group if p names
// none.
func (p modalityPart) newGroup(
	kind, name, defaultKey string,
	info *robocache.Info,
) (g robocache.Group, err error) {
	if strings.HasSuffix(defaultKey, ".") {
		defaultKey += name
	}
	g = robocache.Group{Kind: kind, Name: name, Key: cmp.Or(p.Key, defaultKey)}
	_ = json.Unmarshal(p.Rotation, &g.Rotation)
	_ = json.Unmarshal(p.Absolute, &g.Absolute)
	if kind == "video" || kind == "annotation" {
		return g, nil
	}
	f := info.Feature(g.Key)
	hasRange := p.Start != nil && p.End != nil && 0 <= *p.Start && *p.Start <= *p.End
	if f == nil || !hasRange || *p.End > f.Elements() {
		return g, fmt.Errorf("%s: no such part of %s", name, g.Key)
	}
	g.Start, g.End = *p.Start, *p.End
	return g, nil
}
