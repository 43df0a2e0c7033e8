package aloha

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/h5set"
	"github.com/goatnote-inc/robocache/internal/guard"
)

var options = map[string]string{
	"channel_order": "rgb (default) or bgr: what the images' channels are; cam_high=bgr,cam_low=rgb for some cameras",
}

func init() {
	robocache.Register(robocache.Format{Name: "aloha", Detect: Detect, Options: options, Open: func(ctx context.Context, uri string, opt robocache.OpenOptions) (robocache.Dataset, error) {
		d, err := Open(ctx, uri, opt)
		if err != nil {
			return nil, err
		}
		return d, nil
	}})
}

// Detect says whether uri is an HDF5 file with action and observations at its root, or a folder whose first HDF5 file is.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	return h5set.Detect(ctx, uri, opt, func(ctx context.Context, f *h5.File) (bool, error) {
		a, err := f.Lookup(ctx, "action")
		if err != nil {
			return false, err
		}
		o, err := f.Lookup(ctx, "observations")
		return err == nil && a.IsDataset() && o.IsGroup(), err
	})
}

// Dataset is an open folder, or file, in ALOHA's layout.
type Dataset struct{ *h5set.Set }

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the dataset at uri.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (d *Dataset, err error) {
	defer guard.Malformed("aloha open", &err)
	s, names, found, err := h5set.Find(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	d = &Dataset{h5set.New(s, "aloha", robocache.Redact(uri), opt)}
	d.Info_.Findings = found
	if err := d.read(ctx, names, opt); err != nil {
		d.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return d, nil
}

func (d *Dataset) read(ctx context.Context, names []string, opt robocache.OpenOptions) error {
	d.Episodes = make([]h5set.Episode, len(names))
	bad := make([]error, len(names))
	rates := make([]robocache.Rate, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for i, name := range names {
		g.Go(func() (err error) {
			defer guard.Malformed("aloha open", &err)
			if err = d.episode(gctx, i, name, &rates[i]); err != nil && h5set.Data(err) && len(names) > 1 {
				bad[i], err = err, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, err := range bad {
		if err == nil {
			continue
		}
		d.Lose("unreadable-episode", robocache.Where{"episode": int64(i), "file": names[i]}, err, "fetch the file again, or leave it out")
		d.Episodes[i] = h5set.Episode{File: d.Stand(names[i]), Index: int64(i)}
	}
	if d.Info_.FPS.Zero() {
		if err := d.rate(names, rates, bad); err != nil {
			return err
		}
	}
	if err := d.Schema(ctx, keyOf); err != nil {
		return err
	}
	if err := d.Swap(opt.Options["channel_order"], opt.Map); err != nil {
		return err
	}
	return d.Ready()
}

// rate takes what the files say, which must be one; ALOHA's own is 50 Hz.
func (d *Dataset) rate(names []string, rates []robocache.Rate, bad []error) error {
	for i, r := range rates {
		if r.Zero() || bad[i] != nil {
			continue
		}
		if have := d.Info_.FPS; !have.Zero() && have != r {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "aloha", Where: robocache.Where{"file": names[i]}, Msg: "files of one folder have different rates", Want: have.String(), Got: r.String(), Hint: "open them one by one, or name the rate of the rows: --rows-hz, in Python rows_hz="}
		}
		d.Info_.FPS = r
	}
	if d.Info_.FPS.Zero() {
		d.Info_.FPS = robocache.Rate{Num: 50, Den: 1}
		d.Find(robocache.SeverityInfo, "rate-assumed", nil, "the files say no rate: 50 Hz, ALOHA's own", "name another: --rows-hz 30, in Python rows_hz=30")
	}
	return nil
}

// keyOf names the stream of a data set.
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

func (d *Dataset) episode(ctx context.Context, i int, name string, rate *robocache.Rate) error {
	f, err := d.OpenFile(ctx, name)
	if err != nil {
		return err
	}
	root, err := f.Root(ctx)
	if err != nil {
		return err
	}
	e := &d.Episodes[i]
	*e = h5set.Episode{File: f, Group: root.Address(), Index: int64(i)}
	w, err := h5set.NewWalker(ctx, f, root, "")
	if err != nil {
		return err
	}
	action, err := w.Dataset(ctx, "action")
	if err != nil {
		return err
	}
	if err := action.Claim(); err != nil {
		return err
	}
	e.Length = int(action.Rows())
	attrs, err := root.Attributes(ctx)
	if err != nil {
		return err
	}
	for k := range attrs {
		switch a := &attrs[k]; a.Name {
		case "fps", "hz", "frequency", "control_freq":
			if v, ok := a.Float(); ok {
				if r, err := robocache.RateOf(strconv.FormatFloat(v, 'f', -1, 64)); err == nil {
					*rate = r
				}
			}
		}
	}
	task, err := w.Task(ctx)
	if err != nil && !errors.Is(err, robocache.ErrUnsupported) {
		return fmt.Errorf("the task: %w", err)
	}
	if task != "" {
		e.Tasks = []string{task}
	}
	return nil
}
