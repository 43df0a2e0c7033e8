package rosbag2

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/internal/sqlite"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/recindex"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Name is the format's name.
const Name = "rosbag2"

func init() {
	robocache.Register(
		robocache.Format{
			Name:       Name,
			Stamped:    true,
			Extensions: []string{".db3"},
			Detect:     Detect,
			Open:       reader.Opener(Open),
			Clocks:     true,
			Options:    maps.Clone(bag.Known),
		},
	)
}

// fileKind describes the files that are each a recording when they are opened by name.
var fileKind = bag.FileKind{
	Endings: []string{".db3", ".db3" + zstdSuffix},
	Magic:   "SQLite format 3\x00",
}

// Detect reports whether uri is a db3 file, or a folder that contains a rosbag2 metadata.yaml or
// db3 files, also in subfolders.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return bag.DetectAt(uri, opt, fileKind, func(s store.Store, file string) (bool, error) {
		if file != "" {
			return isDB3(ctx, s, file)
		}
		ours, err := isRosbag2Metadata(ctx, s, metadataName)
		if err != nil && !errors.Is(err, robocache.ErrNotFound) {
			return false, err
		}
		if ours {
			return true, nil
		}
		hasMetadata := err == nil // a broken or foreign file; the storage files decide
		entries, _, err := store.Files(ctx, s, "", isStorageName)
		if errors.Is(err, robocache.ErrUnsupported) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		var odd error
		for _, e := range entries {
			if odd = cmp.Or(odd, e.Err); e.Err == nil && !strings.Contains(e.Name, "/") &&
				bag.Named(e.Name, ".mcap") {
				// Without metadata, the folder has the format mcap.
				return hasMetadata, nil
			}
		}
		for _, e := range entries {
			switch dir, base := path.Split(e.Name); {
			case e.Err != nil: // decide by another file
			case strings.HasSuffix(strings.TrimSuffix(base, zstdSuffix), ".db3"):
				return isDB3(ctx, s, e.Name)
			case base == metadataName && strings.Count(dir, "/") <= 2:
				isBag, err := isRosbag2Metadata(ctx, s, e.Name)
				if err != nil {
					return false, err
				}
				if isBag {
					return true, nil
				}
			}
		}
		if odd != nil {
			return false, odd
		}
		return false, nil
	})
}

// isRosbag2Metadata reports whether a metadata.yaml is rosbag2 metadata.
func isRosbag2Metadata(ctx context.Context, s store.Store, name string) (bool, error) {
	text, err := store.ReadFile(ctx, s, name, metadataLimit)
	return strings.Contains(string(text), "rosbag2_bagfile_information"), err
}

func isDB3(ctx context.Context, s store.Store, name string) (bool, error) {
	f, err := s.Open(ctx, name)
	if errors.Is(err, robocache.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	head, err := readHead(ctx, f)
	if err != nil {
		return false, err
	}
	return sqlite.IsDB(head) || strings.HasSuffix(name, zstdSuffix) && isZstd(head), nil
}

// readHead returns the first bytes of a file.
func readHead(ctx context.Context, f robocache.Ranged) ([]byte, error) {
	head := make([]byte, min(16, f.Size()))
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	return head, nil
}

func isZstd(b []byte) bool { return bytes.HasPrefix(b, []byte("\x28\xb5\x2f\xfd")) }

// Dataset is an open set of rosbag2 recordings.
type Dataset = bag.Dataset

// Open opens a recording or a folder of them. Each recording is an episode.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return bag.OpenAt(
		uri,
		opt,
		fileKind,
		func(s store.Store, file string) (*Dataset, error) { return OpenStore(ctx, s, file, opt) },
	)
}

// OpenStore opens one file of a store, or all recordings below it if file is "". Closing the
// dataset closes the store.
func OpenStore(
	ctx context.Context,
	s store.Store,
	file string,
	opt robocache.OpenOptions,
) (_ *Dataset, err error) {
	defer crash.RecoverFile("rosbag2 open", s.URI(), &err)
	o, err := bag.ParseOptions(opt, s, file, Name)
	if err != nil {
		return nil, err
	}
	var links []store.Entry
	all := []recording{{name: file, files: []string{file}}}
	if file == "" {
		var hasIndex bool
		if all, links, hasIndex, err = findRecordings(ctx, s); err != nil {
			return nil, err
		}
		if o.Index, err = recindex.Begin(ctx, s, opt, hasIndex); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 && len(links) > 0 {
		return nil, links[0].Err
	}
	if len(all) == 0 {
		return nil, robocache.NotFound("open", nil, "no rosbag2 recording was found").
			WithHint("a recording has a metadata.yaml, or files that end in .db3")
	}
	if m := all[0].meta; m != nil {
		o.Version = strconv.Itoa(m.version)
	}
	oo := openOptions{
		strict: o.Strict,
		blocks: newBlockCache(o.Budget),
		mcap:   mcap.StorageOptionsOf(o),
	}
	recs := make([]bag.Recording, len(all))
	for k := range all {
		r := &all[k]
		recs[k] = bag.Recording{
			Name:    r.name,
			Size:    r.size,
			Version: r.version,
			Open: func(ctx context.Context) (bag.Storage, error) {
				return r.openStorage(ctx, s, oo)
			},
		}
	}
	d, err := bag.Open(ctx, recs, o)
	if err != nil {
		return nil, err
	}
	d.Info().Findings = append(d.Info().Findings, store.Findings(links, "link-not-followed")...)
	return d, nil
}
