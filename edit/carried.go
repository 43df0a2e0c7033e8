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

// carriedFiles lists files of a LeRobot dataset that are neither tables nor videos. They are copied
// to the result.
var carriedFiles = []string{
	"README.md",
	"LICENSE",
	"LICENSE.md",
	"LICENSE.txt",
	"CITATION.cff",
	"meta/modality.json",
}

// Carried returns files that the writer does not produce itself: the log of edits, the carriedFiles
// of the first source, and the keys of its info.json that the writer does not know.
func (v *planDataset) Carried(
	ctx context.Context,
	r *write.Report,
) (files map[string][]byte, info map[string]json.RawMessage, err error) {
	files = map[string][]byte{}
	info = map[string]json.RawMessage{}
	var log [][]byte
	for i, ds := range v.srcs {
		s, ok := robocache.As[store.Source](ds)
		if !ok || ds.Info().Format != robocache.DefaultFormat() {
			continue
		}
		if content, err := v.readSourceFile(ctx, s.Store(), editsName); err != nil {
			return files, info, err
		} else if content != nil {
			for line := range bytes.Lines(append(bytes.TrimSpace(content), '\n')) {
				if !slices.ContainsFunc(log, func(l []byte) bool { return bytes.Equal(l, line) }) {
					log = append(log, line)
				}
			}
		}
		if i > 0 {
			continue
		}
		for _, name := range carriedFiles {
			if content, err := v.readSourceFile(ctx, s.Store(), name); err != nil {
				return files, info, err
			} else if content != nil && !bytes.Contains(content, []byte(write.CardText)) {
				files[name] = content
			}
		}
		var raw map[string]json.RawMessage
		if content, err := v.readSourceFile(ctx, s.Store(), "meta/info.json"); err != nil {
			return files, info, err
		} else if content != nil && json.Unmarshal(content, &raw) == nil {
			for key, text := range raw {
				// The writer writes v3.0, where info.json has no counts of videos and chunks.
				// writeRecordings writes StreamsKey, because not all recordings may be kept.
				if key != "total_videos" && key != "total_chunks" && key != write.StreamsKey {
					info[key] = text
				}
			}
		}
	}
	if content := files["meta/modality.json"]; content != nil {
		if files["meta/modality.json"], err = v.renameInModality(content); err != nil {
			return files, info, err
		}
	}
	if err := v.writeRecordings(ctx, r, info); err != nil {
		return files, info, err
	}
	ownLine, err := v.editLine(r)
	if err != nil {
		return files, info, err
	}
	files[editsName] = append(bytes.Join(log, nil), ownLine...)
	return files, info, nil
}

// readSourceFile returns the content of a file of a source, or nil if the file does not exist.
func (v *planDataset) readSourceFile(
	ctx context.Context,
	s store.Store,
	name string,
) ([]byte, error) {
	b, err := store.ReadFile(ctx, s, name, maxMetaBytes)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// renameInModality returns GR00T's modality.json with the new names of renamed features.
func (v *planDataset) renameInModality(b []byte) ([]byte, error) {
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
