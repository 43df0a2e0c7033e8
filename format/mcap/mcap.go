package mcap

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/recindex"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Name is the format's name.
const Name = "mcap"

const fileSuffix = ".mcap"

// fileKind describes MCAP files. A file without the suffix is recognized by its magic.
var fileKind = bag.FileKind{Endings: []string{fileSuffix}, Magic: "\x89MCAP0\r\n"}

func init() {
	robocache.Register(
		robocache.Format{
			Name:          Name,
			Stamped:       true,
			Detect:        Detect,
			Open:          reader.Opener(Open),
			Write:         Write,
			Keeps:         canKeep,
			Sharding:      &sharding,
			WriteOptions:  WriteOptions,
			Clocks:        true,
			NeedsEpisodes: true,
			Options:       maps.Clone(bag.Known),
		},
	)
}

// Detect reports whether uri is an MCAP file, or a folder with MCAP files at its root that is not a
// rosbag2 bag (metadata.yaml). A local MCAP file may have any name.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return bag.DetectAt(uri, opt, fileKind, func(s store.Store, file string) (bool, error) {
		if file == "" {
			if _, err := s.Stat(ctx, "metadata.yaml"); err == nil {
				return false, nil
			}
			if hasRegularFile(uri) {
				return true, nil
			}
			list, err := listFiles(ctx, s)
			for _, f := range list.Files {
				if f.Err == nil {
					return true, nil
				}
				err = cmp.Or(err, f.Err) // the folder may be a dataset of another format
			}
			// A web server cannot list a folder.
			if !errors.Is(err, robocache.ErrUnsupported) {
				if err != nil {
					return false, err
				}
			}
			return false, nil
		}
		_, err := s.Stat(ctx, file)
		if errors.Is(err, robocache.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return true, nil
	})
}

// maxNamesRead is the number of names of a folder that are read at once.
const maxNamesRead = 1024

// hasRegularFile reports whether a local folder has a regular MCAP file. It stops at the first one,
// because a folder can hold a very large number of recordings.
func hasRegularFile(uri string) bool {
	dir, isLocal := store.LocalPath(uri)
	if !isLocal {
		return false
	}
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(maxNamesRead)
		for _, e := range entries {
			if e.Type().IsRegular() && bag.Named(e.Name(), fileSuffix) {
				return true
			}
		}
		if err != nil {
			return false
		}
	}
}

// listFiles returns the MCAP files at the root of a store. The list also contains entries that
// cannot be opened.
func listFiles(ctx context.Context, s store.Store) (reader.Listing, error) {
	return reader.Files(
		ctx,
		s,
		func(name string) bool {
			return !strings.Contains(name, "/") && bag.Named(name, fileSuffix)
		},
	)
}

// Dataset is an open set of MCAP files.
type Dataset = bag.Dataset

// Open opens an MCAP file or a folder of them. Each file is an episode.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return bag.OpenAt(
		uri,
		opt,
		fileKind,
		func(s store.Store, file string) (*Dataset, error) { return OpenStore(ctx, s, file, opt) },
	)
}

// OpenStore opens one file of a store, or all files at its root if file is "". Closing the dataset
// closes the store.
func OpenStore(
	ctx context.Context,
	s store.Store,
	file string,
	opt robocache.OpenOptions,
) (_ *Dataset, err error) {
	defer crash.Recover("mcap open", &err)
	o, err := bag.ParseOptions(opt, s, file, Name)
	if err != nil {
		return nil, err
	}
	list := reader.Listing{Names: []string{file}}
	if file == "" {
		if list, err = listFiles(ctx, s); err != nil {
			return nil, err
		}
		if o.Index, err = recindex.Begin(ctx, s, opt, list.HasIndex); err != nil {
			return nil, err
		}
	}
	if len(list.Names) == 0 {
		return nil, robocache.NotFound("open", nil, "no .mcap file was found")
	}
	sto := StorageOptionsOf(o)
	recs := make([]bag.Recording, len(list.Names))
	for i, name := range list.Names {
		e := list.EntryOf(name)
		recs[i] = bag.Recording{
			Name:    path.Clean(name),
			Size:    e.Size,
			Version: e.Version,
			Open: func(ctx context.Context) (_ bag.Storage, err error) {
				defer crash.Recover("mcap open", &err)
				r, err := s.Open(ctx, name)
				if err != nil {
					return nil, err
				}
				st, err := OpenStorage(ctx, r, name, sto)
				if err != nil {
					r.Close()
					return nil, err
				}
				return st, nil
			},
		}
	}
	return bag.Open(ctx, recs, o)
}
