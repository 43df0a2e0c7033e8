package flags

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/store"
)

const (
	version  = 1
	maxBytes = 64 << 20
)

// Flag marks an episode, or some of its rows, with a label.
type Flag struct {
	Episode int64 `json:"episode_index"` // robocache.Episode.Index
	// Length is the number of rows of the episode when it was flagged; 0 means unknown.
	Length int    `json:"length,omitempty"`
	Label  string `json:"label,omitempty"`
	Note   string `json:"note,omitempty"`
	// Rows is the range [from, to) of the episode's own rows. If empty, the whole episode is
	// flagged.
	Rows []int `json:"rows,omitempty"`
}

// File holds the flags of one dataset.
type File struct {
	Version int `json:"robocache_flags"`
	// as it was opened, without secrets; for people only
	Dataset     string `json:"dataset,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Flags       []Flag `json:"flags"`
}

// New returns a File without flags.
func New(ctx context.Context, ds robocache.Dataset) (*File, error) {
	fingerprint, err := Fingerprint(ctx, ds)
	if err != nil {
		return nil, err
	}
	return &File{
		Version:     version,
		Dataset:     robocache.Redact(ds.Info().URI),
		Fingerprint: fingerprint,
		Flags:       []Flag{},
	}, nil
}

// Fingerprint identifies a dataset independently of its location. It is a hash over the schema, the
// length of each episode, and some rows, because two recordings of one robot may have the same
// lengths. For streams with their own clocks it hashes timestamps instead of values: they differ
// between recordings and are faster to read.
func Fingerprint(ctx context.Context, ds robocache.Dataset) (string, error) {
	info := ds.Info()
	h := sha256.New()
	fmt.Fprintf(h, "flags 2 %d\n", info.Episodes)
	for e := range info.Episodes {
		fmt.Fprintln(h, ds.Len(e))
	}
	last := info.Episodes - 1
	for i := range info.Features {
		f := &info.Features[i]
		fmt.Fprintf(h, "%q %s %v\n", f.Key, f.Kind, f.Shape)
		for _, e := range []int{0, last / 2, last} {
			n := 0
			if e >= 0 && e <= last {
				n = ds.Len(e)
			}
			// Read errors are ignored here. They are reported when the rows are used.
			switch {
			case n == 0:
			case f.Clock != "":
				{
					times, err := ds.Times(ctx, e, f.Key)
					if robocache.IsFatal(err) {
						return "", err
					}
					if err == nil && len(times) > 0 {
						fmt.Fprintln(h, times[0], times[len(times)-1])
					}
				}
			case f.Kind == robocache.KindNumeric && !f.Ragged():
				raw := make([]byte, 3*f.RowBytes())
				rows := []robocache.Row{
					{Episode: e},
					{Episode: e, Index: n / 2},
					{Episode: e, Index: n - 1},
				}
				problem := ds.Gather(ctx, f.Key, rows, raw)
				if robocache.IsFatal(problem) {
					return "", problem
				}
				if problem == nil {
					_, _ = h.Write(raw)
				}
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// sidecars are endings of files that hold results about a dataset. They are no part of its state.
var sidecars = []string{
	"search.index", "quality.parquet", "embeddings.parquet", ".html", ".incomplete",
	store.RecordingIndex,
}

// isSidecar reports whether a file holds results about a dataset, or is unfinished work on one.
func isSidecar(name string) bool {
	return strings.Contains(name, ".parts/part-") ||
		slices.ContainsFunc(sidecars, func(end string) bool { return strings.HasSuffix(name, end) })
}

// FilesState returns the state of a dataset's files: the kind of storage, a hash of names and sizes,
// and a hash of names, sizes and versions (modification times or ETags). It returns "" if the
// dataset has no files, or if the storage cannot list them.
func FilesState(ctx context.Context, ds robocache.Dataset) (string, error) {
	s, ok := robocache.As[store.Source](ds)
	if !ok {
		return "", nil
	}
	list, err := s.Store().List(ctx, "")
	if errors.Is(err, robocache.ErrUnsupported) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// The dataset is one file.
	i := slices.IndexFunc(
		list,
		func(f store.Entry) bool { return f.Name == path.Base(ds.Info().URI) },
	)
	if i >= 0 {
		list = list[i : i+1]
	}
	sizes, versions := sha256.New(), sha256.New()
	for _, f := range list {
		top, _, _ := strings.Cut(f.Name, "/")
		isLeRobot := ds.Info().Format == robocache.DefaultFormat()
		isData := !isLeRobot || slices.Contains([]string{"data", "videos", "images", "meta"}, top)
		if isData && !isSidecar(f.Name) {
			fmt.Fprintf(sizes, "%q %d\n", f.Name, f.Size)
			fmt.Fprintf(versions, "%q %d %s\n", f.Name, f.Size, f.Version)
		}
	}
	kind, _, isRemote := strings.Cut(s.Store().URI(), "://")
	if _, isLocal := store.LocalPath(s.Store().URI()); isLocal || !isRemote {
		kind = "file"
	}
	return fmt.Sprintf("%s %x %x", kind, sizes.Sum(nil)[:16], versions.Sum(nil)[:16]), nil
}

// SameFiles reports whether two results of FilesState agree. Two kinds of storage have different
// versions of the same file: between them only names and sizes are compared. The empty state agrees
// with every state.
func SameFiles(a, b string) bool {
	before, after := strings.Fields(a), strings.Fields(b)
	if len(before) != 3 || len(after) != 3 || before[0] == after[0] {
		return a == b || a == "" || b == ""
	}
	return before[1] == after[1]
}

// Check returns an error if the flags belong to another dataset. A file without a fingerprint fits
// any dataset.
func (f *File) Check(ctx context.Context, ds robocache.Dataset) error {
	if f.Fingerprint == "" {
		return nil
	}
	if own, err := Fingerprint(ctx, ds); err != nil {
		return err
	} else if f.Fingerprint != own {
		return robocache.Misuse(
			"flags",
			nil,
			"the flags belong to another dataset, or to this one before it was edited: fingerprint",
		).Expected(own, f.Fingerprint).
			WithHint(
				"The flags belong to %s. Flag the episodes again, or name them with %s.",
				f.Dataset,
				robocache.Option("episodes"),
			)
	}
	return nil
}

// Choose drops the flags that have another label. It rejects an unknown label. If label is empty it
// rejects flags of several labels, because their meanings may be opposite.
func (f *File) Choose(label string) error {
	counts := map[string]int{}
	for _, x := range f.Flags {
		counts[x.Label]++
	}
	if label == "" && len(counts) < 2 || counts[label] > 0 && label != "" {
		if label != "" {
			f.Flags = slices.DeleteFunc(f.Flags, func(x Flag) bool { return x.Label != label })
		}
		return nil
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		labels = append(labels, fmt.Sprintf("%q (%d)", name, counts[name]))
	}
	msg, hint := "the file has flags of several labels", "Choose one with "+robocache.Option(
		"label",
	)
	if label != "" {
		msg, hint = fmt.Sprintf("no flag has the label %q", label), "Choose a label of the file."
	}
	return robocache.Misuse("flags", nil, "%s: %s", msg, strings.Join(labels, ", ")).
		WithHint("%s", hint)
}

// Parse parses the content of a file.
func Parse(b []byte) (_ *File, err error) {
	bad := func(err error, format string, args ...any) error {
		e, known := err.(*robocache.Error)
		if !known {
			e = robocache.Malformed("flags", nil, "")
		}
		e.Msg = fmt.Sprintf(format, args...)
		return e.WithHint(
			"a file of %s, or a list of episode indexes such as [3, 7]",
			robocache.Command("view --flags=FILE"),
		)
	}
	f := &File{Version: version}
	if text := bytes.TrimSpace(b); len(text) > 0 && text[0] == '[' {
		var list []int64
		if err := jsonmeta.Unmarshal("flags", text, &list); err != nil {
			return nil, bad(err, "not a list of episode indexes")
		}
		for _, e := range list {
			f.Flags = append(f.Flags, Flag{Episode: e})
		}
	} else {
		f.Version = 0
		if err := jsonmeta.Unmarshal("flags", text, f); err != nil {
			return nil, bad(err, "not a file of flags")
		}
	}
	if f.Version != version {
		if err := bad(nil, "robocache_flags is %d, expected %d", f.Version, version); err != nil {
			return nil, err
		}
	}
	for i, x := range f.Flags {
		if x.Episode < 0 || x.Length < 0 {
			if err := bad(nil, "flag %d: episode_index %d, length %d", i, x.Episode,
				x.Length); err != nil {
				return nil, err
			}
		}
		if r := x.Rows; len(r) != 0 &&
			(len(r) != 2 || r[0] < 0 || r[1] <= r[0] || x.Length > 0 && r[1] > x.Length) {
			if err := bad(nil, "flag %d: rows %v of an episode of %d, expected [from, to)", i, r,
				x.Length); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// Read reads a file.
func Read(ctx context.Context, path string) (_ *File, err error) {
	defer robocache.LocateIn(&err, "file", path)
	s, err := store.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close(s) }()
	content, err := store.ReadFile(ctx, s, filepath.Base(path), maxBytes)
	if err != nil {
		return nil, err
	}
	return Parse(content)
}

// Write replaces the file at path atomically.
func (f *File) Write(ctx context.Context, path string) error {
	b, err := f.Bytes()
	if err != nil {
		return err
	}
	return store.WriteFile(ctx, filepath.Dir(path), filepath.Base(path), b)
}

// Bytes returns the content of the file.
func (f *File) Bytes() ([]byte, error) {
	slices.SortStableFunc(f.Flags, func(a, b Flag) int {
		return cmp.Or(
			cmp.Compare(a.Episode, b.Episode),
			slices.Compare(a.Rows, b.Rows),
			cmp.Compare(a.Label, b.Label),
			cmp.Compare(a.Note, b.Note),
		)
	})
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	err := enc.Encode(f)
	return out.Bytes(), err
}
