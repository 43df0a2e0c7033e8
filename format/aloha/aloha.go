package aloha

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/h5set"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

var options = map[string]string{
	"channel_order": "rgb (default) or bgr: what the images' channels are; " +
		"cam_high=bgr,cam_low=rgb for some cameras",
}

func init() {
	robocache.Register(
		robocache.Format{
			Name:    "aloha",
			Detect:  Detect,
			Options: options,
			Open:    reader.Opener(Open),
		},
	)
}

// Detect reports whether uri is an HDF5 file with action and observations at its root. For a folder
// it checks the first HDF5 file.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return h5set.Detect(ctx, uri, opt, func(f *h5.File) (bool, error) {
		action, err := f.Lookup(ctx, "action")
		if err != nil {
			return false, err
		}
		if !action.IsDataset() {
			return false, nil
		}
		observations, err := f.Lookup(ctx, "observations")
		if err != nil {
			return false, err
		}
		return observations.IsGroup(), nil
	})
}

// Dataset is an open folder, or file, in ALOHA's layout.
type Dataset = h5set.Set

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return h5set.Open(ctx, "aloha", uri, opt, func(s *h5set.Set, names []string) error {
		if err := s.ReadFiles(
			ctx,
			names,
			true,
			func(ctx context.Context, f *h5.File, root *h5.Object) ([]h5set.Episode, error) {
				episode, err := describeEpisode(ctx, f, root)
				if err != nil {
					return nil, err
				}
				return []h5set.Episode{episode}, nil
			},
		); err != nil {
			return err
		}
		if s.About.FPS.Zero() {
			s.About.FPS = robocache.Rate{Num: 50, Den: 1}
			s.Find(
				robocache.SeverityInfo,
				"rate-assumed",
				nil,
				"the files say no rate: 50 Hz, ALOHA's own",
				"name another: "+robocache.Option("rows_hz", 30),
			)
		}
		return s.Schema(ctx, keyOf)
	})
}

// keyOf returns the key of the stream in a data set, or "" if it is not a stream.
func keyOf(path string) string {
	if path == "compress_len" {
		return ""
	}
	dots := strings.ReplaceAll(path, "/", ".")
	if rest, ok := strings.CutPrefix(dots, "observations."); ok {
		return "observation." + rest
	}
	return dots
}

func describeEpisode(ctx context.Context, f *h5.File, root *h5.Object) (h5set.Episode, error) {
	e := h5set.Episode{File: f, Group: root.Address()}
	w, err := h5set.NewWalker(ctx, f, root, "")
	if err != nil {
		return h5set.Episode{}, err
	}
	action, err := w.Dataset("action")
	if err != nil {
		return h5set.Episode{}, err
	}
	if err := action.Claim(); err != nil {
		return h5set.Episode{}, err
	}
	e.Length = int(action.Rows())
	err = func() error {
		task, err := w.Task()
		if err != nil {
			return err
		}
		e.SetTask(task)
		return nil
	}()
	if err != nil && !errors.Is(err, robocache.ErrUnsupported) {
		return h5set.Episode{}, fmt.Errorf("the task: %w", err)
	}
	return e, nil
}
