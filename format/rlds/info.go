package rlds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

const (
	infoName        = "dataset_info.json"
	metadataName    = "metadata.json"
	defaultTemplate = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
	maxShards       = 1 << 20
)

// infoFile is the used part of dataset_info.json.
type infoFile struct {
	Name        string          `json:"name"`
	Config      string          `json:"configName"`
	Version     json.RawMessage `json:"version"`
	FileFormat  string          `json:"fileFormat"`
	Description string          `json:"description"`
	Splits      []splitFile     `json:"splits"`
	version     string
}

type splitFile struct {
	Name         string   `json:"name"`
	Template     string   `json:"filepathTemplate"`
	ShardLengths []number `json:"shardLengths"`
	NumShards    number   `json:"numShards"` // used before shardLengths existed
	NumBytes     number   `json:"numBytes"`
}

// parseInfo parses dataset_info.json.
func parseInfo(b []byte) (_ *infoFile, err error) {
	defer guard.Recover("rlds", &err)
	var f infoFile
	readJSON(infoName, b, &f)
	f.version = strings.Trim(string(f.Version), `"`)
	if f.version != "" && f.version[0] == '{' { // a message of older writers
		var v struct{ Version, Major, Minor, Patch string }
		if json.Unmarshal(f.Version, &v) == nil {
			f.version = v.Version
		}
	}
	switch strings.ToLower(f.FileFormat) {
	case "", "tfrecord":
		f.FileFormat = "tfrecord"
	default:
		return nil, robocache.Unsupported(
			"rlds",
			robocache.Where{"file": infoName, "pointer": "/fileFormat"},
			"",
		).Expected("tfrecord", quoteClipped(f.FileFormat)).
			WithHint("write the dataset again as tfrecord with tfds.convert")
	}
	if f.Name == "" {
		return nil, robocache.Malformed(
			"rlds",
			robocache.Where{"file": infoName, "pointer": "/name"},
			"",
		).Expected("the name of the data set, which its files carry", "none")
	}
	seen := map[string]bool{}
	for i := range f.Splits {
		s := &f.Splits[i]
		at := robocache.Where{"file": infoName, "pointer": fmt.Sprintf("/splits/%d", i)}
		if s.Name == "" || seen[s.Name] {
			return nil, robocache.Malformed("rlds", at, "").
				Expected("splits of different names", quoteClipped(s.Name))
		}
		seen[s.Name] = true
		if s.Template == "" {
			s.Template = defaultTemplate
		}
		if len(s.ShardLengths) > maxShards || s.NumShards > maxShards {
			return nil, robocache.ResourceLimit("rlds", at, "").
				Expected(
					fmt.Sprintf("at most %d shards", maxShards),
					fmt.Sprint(max(len(s.ShardLengths), int(s.NumShards))),
				)
		}
		for k, n := range s.ShardLengths {
			if n < 0 {
				at["pointer"] = fmt.Sprintf("/splits/%d/shardLengths/%d", i, k)
				return nil, robocache.Malformed("rlds", at, "").
					Expected("a number of episodes", fmt.Sprint(n))
			}
		}
		_, err := s.fileName(f.Name, f.FileFormat, 0, 1)
		guard.Check(robocache.At(err, at))
	}
	return &f, nil
}

// fileName returns the name of a shard. The template is untrusted, so its result is checked here
// and by the store.
func (s *splitFile) fileName(dataset, format string, i, n int) (string, error) {
	width := max(5, len(strconv.Itoa(max(n-1, 0))))
	at, of := fmt.Sprintf("%0*d", width, i), fmt.Sprintf("%0*d", width, n)
	parts := []string{
		"{DATASET}",
		dataset,
		"{SPLIT}",
		s.Name,
		"{FILEFORMAT}",
		format,
		"{SHARD_INDEX}",
		at,
		"{NUM_SHARDS}",
		of,
		"{SHARD_X_OF_Y}",
		at + "-of-" + of,
	}
	known := slices.Clone(parts)
	for k := 1; k < len(known); k += 2 {
		known[k] = ""
	}
	if strings.ContainsAny(strings.NewReplacer(known...).Replace(s.Template), "{}") {
		return "", robocache.Malformed("rlds", robocache.Where{"pointer": "filepathTemplate"}, "").
			Expected(
				"{DATASET}, {SPLIT}, {FILEFORMAT}, {SHARD_X_OF_Y}, {SHARD_INDEX}, {NUM_SHARDS}",
				quoteClipped(s.Template),
			)
	}
	if len(s.Template)+len(dataset)+len(s.Name) > store.MaxName {
		return "", robocache.Malformed(
			"rlds",
			nil,
			"the template of shard names gives a path that is too long",
		)
	}
	return store.CleanName(strings.NewReplacer(parts...).Replace(s.Template))
}

// shard is one file of a split.
type shard struct {
	split  int
	number int // number in its split
	name   string
	stated int64 // number of episodes by shardLengths; -1 if it is not stated
}

// shardsOf lists the shards of the chosen splits in order. have holds the existing names, or is nil
// if the store cannot list.
func (f *infoFile) shardsOf(chosen []int, have map[string]int64) (out []shard, err error) {
	defer guard.Recover("rlds", &err)
	for _, k := range chosen {
		s := &f.Splits[k]
		n := len(s.ShardLengths)
		if n == 0 {
			n = int(max(s.NumShards, 0))
		}
		if n == 0 && have != nil {
			n = s.countShards(f, have)
		}
		for i := range n {
			out = append(out, shard{
				split:  k,
				number: i,
				name:   guard.Must(s.fileName(f.Name, f.FileFormat, i, n)),
				stated: -1,
			})
			if len(s.ShardLengths) > 0 {
				out[len(out)-1].stated = int64(s.ShardLengths[i])
			}
		}
	}
	return out, nil
}

// countShards returns the number of shards of a split, which the name of an existing shard states.
func (s *splitFile) countShards(f *infoFile, have map[string]int64) int {
	for n := range have {
		k := strings.LastIndex(n, "-of-")
		total, err := strconv.Atoi(n[k+4:])
		if k < 0 || err != nil || total < 1 || total > maxShards {
			continue
		}
		for i := range total {
			if name, err := s.fileName(f.Name, f.FileFormat, i, total); err == nil && name == n {
				return total
			}
			if i > 1<<16 {
				break
			}
		}
	}
	return 0
}

// chooseSplits returns the splits that an option names: "train", "train+val", or "" and "all" for
// all of them.
func (f *infoFile) chooseSplits(option string) []int {
	if option == "" || option == "all" {
		return reader.Episodes(nil, len(f.Splits))
	}
	var out []int
	for _, name := range strings.Split(option, "+") {
		at := slices.IndexFunc(
			f.Splits,
			func(s splitFile) bool { return s.Name == strings.TrimSpace(name) },
		)
		if at < 0 || slices.Contains(out, at) {
			var names []string
			for i := range f.Splits {
				names = append(names, f.Splits[i].Name)
			}
			slices.Sort(names)
			guard.Fail(robocache.Misuse("rlds", robocache.Where{"option": "split"}, "").
				Expected(
					"one or several of "+strings.Join(names, ", ")+", joined by +, each once",
					quoteClipped(option),
				),
			)
		}
		out = append(out, at)
	}
	return out
}

// ownMetadata is what our writer adds to metadata.json, which is the file of TFDS for such
// additions.
type ownMetadata struct {
	Robocache *struct {
		FPS   robocache.Rate `json:"fps,omitzero"`
		Robot string         `json:"robot_type,omitempty"`
		// key of the int64 nanoseconds of each step
		Timestamps string `json:"stamps,omitempty"`
		Regular    bool   `json:"regular,omitempty"` // all timestamps are k/fps
		// Features holds, by key, properties that features.json cannot state.
		Features map[string]featureNote `json:"features,omitempty"`
	} `json:"robocache"`
}

// featureNote is what our writer states about a stream in addition to features.json.
type featureNote struct {
	// "pointcloud" if its rows vary in length
	Kind          robocache.Kind       `json:"kind,omitempty"`
	Names         json.RawMessage      `json:"names,omitempty"`
	Unit          string               `json:"unit,omitempty"`
	Interpolation string               `json:"interpolation,omitempty"`
	Rotations     []robocache.Rotation `json:"rotations,omitempty"`
	// relative channels; empty if there are none
	Relative   []int `json:"relative,omitzero"`
	Unsummable []int `json:"unsummable,omitempty"`
}

// readMetadata reads what our writer added to metadata.json.
func readMetadata(ctx context.Context, s store.Store) ownMetadata {
	var m ownMetadata
	b, err := store.ReadFile(ctx, s, metadataName, 1<<20)
	if err != nil || checkDepth(b) != nil || json.Unmarshal(b, &m) != nil {
		if !errors.Is(err, robocache.ErrNotFound) && !errors.Is(err, robocache.ErrResourceLimit) {
			guard.Check(err)
		}
		return ownMetadata{} // another program's file, or none
	}
	return m
}
