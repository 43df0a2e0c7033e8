package mcap

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/reader"
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
			_, files, err := listFiles(ctx, s)
			for _, f := range files {
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

// listFiles returns the MCAP files at the root of a store, ordered by the numbers in their names.
// files also contains entries that cannot be opened.
func listFiles(
	ctx context.Context,
	s store.Store,
) (names []string, files []store.Entry, err error) {
	names, files, _, err = reader.Files(
		ctx,
		s,
		func(name string) bool {
			return !strings.Contains(name, "/") && bag.Named(name, fileSuffix)
		},
	)
	return names, files, err
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
	files := []string{file}
	if file == "" {
		files, _, err = listFiles(ctx, s)
		if err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, robocache.NotFound("open", nil, "no .mcap file was found")
	}
	sto := StorageOptionsOf(o)
	recs := make([]bag.Recording, len(files))
	for i, name := range files {
		recs[i] = bag.Recording{
			Name: path.Clean(name),
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
