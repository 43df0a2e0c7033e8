package lerobot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// Record creates a dataset in a local folder, or continues an existing one.
func Record(
	ctx context.Context,
	dir string,
	cfg write.Config,
	opt write.RecordOptions,
) (*write.Recorder, error) {
	return write.NewRecorder(
		ctx,
		dir,
		cfg,
		opt,
		func(ctx context.Context) (*write.Recorded, error) {
			have, err := readRecorded(ctx, dir)
			if have != nil && opt.OnlyNew {
				err = robocache.Misuse("record", nil, "the folder already holds a dataset").
					WithHint("pass %s to continue it", robocache.Option("mode", "a"))
			}
			return have, err
		},
		func(ctx context.Context) (robocache.Stats, error) { return countNumbers(ctx, dir) },
	)
}

// countNumbers computes the statistics of the numeric features of the dataset in dir.
func countNumbers(ctx context.Context, dir string) (robocache.Stats, error) {
	d, err := Open(ctx, dir, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	keys := []string{}
	for _, f := range d.About.Features {
		if f.Kind == robocache.KindNumeric {
			keys = append(keys, f.Key)
		}
	}
	return stats.Compute(ctx, d, stats.Options{Keys: keys, Frames: stats.NoFrames})
}

// nextNumbers returns an episode_index and an index above all those in the table and in the last
// rows of the data files.
func (d *Dataset) nextNumbers(ctx context.Context) (episode int, row int64) {
	n := d.episodes.count()
	row = max(d.episodes.from[n], d.episodes.nextRow)
	last := int64(-1)
	if n > 0 {
		last = d.episodes.indexAt(n - 1)
	}
	for file := range int32(d.tables.fileCount()) {
		_ = func() error { // a file that cannot be read is ignored
			f, err := d.tables.footer(ctx, file)
			if err != nil {
				return err
			}
			g := len(f.pq.Groups) - 1
			if g < 0 {
				return nil
			}
			episodes, err := d.tables.integers(ctx, f, file, g, "episode_index")
			if err != nil {
				return err
			}
			for _, id := range episodes {
				last = max(last, id)
			}
			indexes, err := d.tables.integers(ctx, f, file, g, "index")
			if err != nil {
				return err
			}
			for _, index := range indexes {
				row = max(row, index+1)
			}
			return nil
		}()
	}
	return int(last) + 1, row
}

// readRecorded reads what a recorder must know about the dataset in dir. It returns nil if dir is
// empty.
func readRecorded(ctx context.Context, dir string) (_ *write.Recorded, err error) {
	defer crash.Recover("record", &err)
	s, err := store.OpenLocal(dir)
	if err != nil {
		return nil, err
	}
	info, err := store.ReadFile(ctx, s, infoPath, maxJSON)
	if errors.Is(err, robocache.ErrNotFound) {
		defer s.Close()
		return nil, checkUnused(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	d, err := OpenStore(ctx, s, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if d.raw.major < 3 {
		return nil, robocache.Unsupported(
			"record",
			nil,
			"the existing dataset has version %s",
			d.raw.version,
		).Expected("v3.0", "").
			WithHint("run robocache convert: it writes v3.0")
	}
	known, err := d.Stats(ctx)
	if err != nil {
		return nil, err
	}
	r := &write.Recorded{
		Info:     info,
		Episodes: d.About.Episodes,
		Frames:   d.About.Frames,
		Stats:    known,
	}
	r.NextEpisode, r.NextRow = d.nextNumbers(ctx)
	r.Config = write.Config{
		FPS:        d.About.FPS,
		Robot:      d.About.Robot,
		ChunksSize: int(d.raw.chunksSize),
	}
	for _, f := range d.About.Features {
		if !f.Default {
			r.Config.Features = append(r.Config.Features, f)
		}
	}
	for i, t := range d.About.Tasks {
		if t.Index != int64(i) {
			return nil, robocache.Unsupported(
				"record",
				robocache.Where{"file": "meta/tasks.parquet"},
				"task numbers are not 0…n−1",
			).WithHint("run robocache convert: it renumbers them")
		}
		r.Config.Tasks = append(r.Config.Tasks, t.Text)
	}
	if r.NextFile, err = nextFileNumber(ctx, s, int(d.raw.chunksSize)); err != nil {
		return nil, err
	}
	return r, nil
}

// checkUnused returns an error if a folder without a dataset has files of others.
func checkUnused(ctx context.Context, s store.Store) error {
	list, err := s.List(ctx, "")
	if err != nil {
		return err
	}
	for _, f := range list {
		if !strings.HasPrefix(f.Name, write.OwnFolder) {
			return robocache.Misuse(
				"record",
				robocache.Where{"file": f.Name},
				"the folder is not empty, and holds no dataset",
			).WithHint("record into an empty folder")
		}
	}
	return nil
}

// nextFileNumber returns the number after the highest chunk and file number of the dataset's files.
func nextFileNumber(ctx context.Context, s store.Store, chunkSize int) (next int, err error) {
	for _, folder := range []string{"data", "videos", "meta/episodes"} {
		list, err := s.List(ctx, folder)
		if err != nil {
			return 0, err
		}
		for _, f := range list {
			var chunk, file int
			dir, name := path.Split(f.Name)
			place := path.Base(dir) + " " + name
			if n, _ := fmt.Sscanf(place, "chunk-%d file-%d", &chunk, &file); n == 2 {
				next = max(next, chunk*chunkSize+file+1)
			}
		}
	}
	return next, nil
}
