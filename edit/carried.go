package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/store"
)

// carried are files of a LeRobot dataset that are no table and no video, and go with its episodes.
var carried = []string{
	"README.md",
	"LICENSE",
	"LICENSE.md",
	"LICENSE.txt",
	"CITATION.cff",
	"meta/modality.json",
}

// Carried gives the log of edits, and what of the sources has a place in no writer: texts for
// people, and keys of info.json that nobody knows.
func (v *view) Carried(
	ctx context.Context,
	r *write.Report,
) (files map[string][]byte, info map[string]json.RawMessage, err error) {
	files, info = map[string][]byte{}, map[string]json.RawMessage{}
	var log [][]byte
	for i, ds := range v.srcs {
		s, ok := robocache.As[store.Source](ds)
		if !ok || ds.Info().Format != robocache.DefaultFormat() {
			continue
		}
		if b, err := v.file(ctx, s.Store(), editsName); err != nil {
			return files, info, err
		} else if b != nil {
			for line := range bytes.Lines(append(bytes.TrimSpace(b), '\n')) {
				if !slices.ContainsFunc(log, func(l []byte) bool { return bytes.Equal(l, line) }) {
					log = append(log, line)
				}
			}
		}
		if i > 0 {
			continue
		}
		for _, name := range carried {
			if b, err := v.file(ctx, s.Store(), name); err != nil {
				return files, info, err
			} else if b != nil && !bytes.Contains(b, []byte(write.CardText)) {
				files[name] = b
			}
		}
		var raw map[string]json.RawMessage
		if b, err := v.file(ctx, s.Store(), "meta/info.json"); err != nil {
			return files, info, err
		} else if b != nil && json.Unmarshal(b, &raw) == nil {
			for key, text := range raw {
				// v2 counts videos and chunks. writeRecordings enters the streams with recordings.
				if key != "total_videos" && key != "total_chunks" && key != write.StreamsKey {
					info[key] = text
				}
			}
		}
	}
	if b := files["meta/modality.json"]; b != nil {
		if files["meta/modality.json"], err = v.renamedModality(b); err != nil {
			return files, info, err
		}
	}
	if err := v.writeRecordings(ctx, r, info); err != nil {
		return files, info, err
	}
	lineValue, err := v.line(r)
	if err != nil {
		return files, info, err
	}
	files[editsName] = append(bytes.Join(log, nil), lineValue...)
	return files, info, nil
}

// file reads a file of a source; nil where there is none.
func (v *view) file(ctx context.Context, s store.Store, name string) ([]byte, error) {
	b, err := store.ReadFile(ctx, s, name, maxEdits)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// renamedModality gives the columns that GR00T's modality.json names the names of the result.
func (v *view) renamedModality(b []byte) ([]byte, error) {
	names := map[string]string{}
	for _, k := range v.plan.Keys {
		if k.Added == nil && k.From[0] != "" && k.From[0] != k.Key {
			names[k.From[0]] = k.Key
		}
	}
	var tree map[string]map[string]map[string]json.RawMessage
	if len(names) == 0 || json.Unmarshal(b, &tree) != nil {
		return b, nil
	}
	for _, group := range tree {
		for _, part := range group {
			var key string
			if json.Unmarshal(part["original_key"], &key) == nil && names[key] != "" {
				var err error
				if part["original_key"], err = json.Marshal(names[key]); err != nil {
					return nil, err
				}
			}
		}
	}
	encoded, err := json.MarshalIndent(tree, "", "    ")
	if err != nil {
		return nil, err
	}
	return append(encoded, '\n'), nil
}
