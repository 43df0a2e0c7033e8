package rosbag2

import (
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
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// Name is the format's name.
const Name = "rosbag2"

func init() {
	robocache.Register(robocache.Format{Name: Name, Stamped: true, Extensions: []string{".db3"}, Detect: Detect, Open: reader.Opener(Open), Clocks: true, Options: maps.Clone(bag.Known)})
}

// endings of the files that are a recording each when they are named alone.
var endings = []string{".db3", ".db3" + packed}

// Detect says whether uri is a db3 file, or a folder with a rosbag2 metadata.yaml or db3 files, at its root or in folders of it.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, file, err := bag.Locate(uri, opt, endings...)
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer store.Close(s)
	if file != "" {
		return isDB3(ctx, s, file)
	}
	text, err := store.ReadFile(ctx, s, metadataName, metadataLimit)
	if err == nil {
		return strings.Contains(string(text), "rosbag2_bagfile_information"), nil
	}
	if !errors.Is(err, robocache.ErrNotFound) {
		return false, err
	}
	entries, _, err := store.Files(ctx, s, "", func(name string) bool {
		return path.Base(name) == metadataName || storageFile(name)
	})
	if errors.Is(err, robocache.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var odd error
	for _, e := range entries {
		if odd = cmp.Or(odd, e.Err); e.Err == nil && !strings.Contains(e.Name, "/") && bag.Named(e.Name, ".mcap") {
			return false, nil // a folder of MCAP files, without metadata: format mcap
		}
	}
	for _, e := range entries {
		switch dir, base := path.Split(e.Name); {
		case e.Err != nil: // another file tells
		case strings.HasSuffix(strings.TrimSuffix(base, packed), ".db3"):
			return isDB3(ctx, s, e.Name)
		case base == metadataName && strings.Count(dir, "/") <= 2:
			text, err := store.ReadFile(ctx, s, e.Name, metadataLimit)
			if err != nil {
				return false, err
			}
			if strings.Contains(string(text), "rosbag2_bagfile_information") {
				return true, nil
			}
		}
	}
	return false, odd
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
	head := make([]byte, min(16, f.Size()))
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return false, err
	}
	return sqlite.IsDB(head) || strings.HasSuffix(name, packed) && strings.HasPrefix(string(head), "\x28\xb5\x2f\xfd"), nil
}

// Dataset is an open set of rosbag2 recordings.
type Dataset = bag.Dataset

// Open opens a recording, or a folder of them: each is an episode.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return bag.OpenAt(uri, opt, func(s store.Store, file string) (*Dataset, error) { return OpenStore(ctx, s, file, opt) }, endings...)
}

// OpenStore opens one file of a store, or with file "" the recordings below it. Close of the dataset closes the store.
func OpenStore(ctx context.Context, s store.Store, file string, opt robocache.OpenOptions) (_ *Dataset, err error) {
	defer guard.File("rosbag2 open", s.URI(), &err)
	o := guard.Must(bag.ParseOptions(opt))
	o.Store, o.URI, o.Format = s, s.URI(), Name
	var all []recording
	var links []store.Entry
	if file != "" {
		o.URI = strings.TrimRight(s.URI(), "/") + "/" + file
		all = []recording{{name: file, files: []string{file}}}
	} else if all, links, err = find(ctx, s); err != nil {
		return nil, err
	}
	if len(all) == 0 && len(links) > 0 {
		return nil, links[0].Err
	}
	if len(all) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "open", Msg: "no rosbag2 recording is here", Hint: "a recording has a metadata.yaml, or files that end in .db3"}
	}
	o.Version = "0"
	if m := all[0].meta; m != nil {
		o.Version = strconv.Itoa(m.version)
	}
	scan, _ := strconv.ParseBool(opt.Options["ignore_index"])
	budget := reader.Budget(opt, 256<<20, 0)
	oo := openOptions{strict: o.Strict, blocks: newLastBlocks(budget), mcap: mcap.StorageOptions{Chunks: mcap.NewChunks(budget), Strict: o.Strict, Scan: scan}}
	recs := make([]bag.Recording, len(all))
	for k := range all {
		r := &all[k]
		recs[k] = bag.Recording{Name: r.name, Open: func(ctx context.Context) (bag.Storage, error) { return r.open(ctx, s, oo) }}
	}
	d := guard.Must(bag.Open(ctx, recs, o))
	d.Info().Findings = append(d.Info().Findings, store.Findings(links, "link-not-followed")...)
	return d, nil
}
