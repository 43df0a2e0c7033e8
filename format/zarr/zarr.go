package zarr

import (
	"context"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// op names the format in errors.
const op = reader.Op("zarr")

var options = map[string]string{
	"images":         "auto (default): float arrays of images that hold 0 to 255 are given as uint8 pixels; raw: as the numbers they are",
	"timestamp_unit": "of data/timestamp: s, ms, us or ns (default: s where it is floating, ns where it is integer)",
}

func init() {
	robocache.Register(robocache.Format{Name: "zarr", Extensions: []string{".zip"}, Detect: Detect, Options: options, Write: Write, Open: reader.Opener(Open)})
}

// Detect says whether the metadata of a Zarr group or array is there: in a folder, or in an archive whose name ends in .zip.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, err := openStore(ctx, uri, opt)
	if err != nil {
		if errors.Is(err, robocache.ErrMisuse) || errors.Is(err, robocache.ErrMalformed) {
			return false, nil // a file of another format, or no zip archive
		}
		return false, err
	}
	defer store.Close(s)
	return hasRoot(ctx, s) || hasBuffer(ctx, s), nil
}

// Dataset is an open Zarr store.
type Dataset struct {
	*tree
	info       *robocache.Info
	ends       []int64 // of a replay buffer, cumulative, a zero in front
	views      map[string]*view
	timestamps *view // nil where there is no clock
	unit       int64 // ns of one timestamp, 0 for seconds in floating point
	rate       robocache.Rate
	tasks      []string // of each episode, where the store has them
	taskKey    string   // the text stream that is the task
	cameras    cameras
}

var (
	_ robocache.Dataset = (*Dataset)(nil)
	_ robocache.Masker  = (*Dataset)(nil)
)

// Open opens the store at uri: a folder, a .zip file, or http with consolidated metadata.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	s, err := openStore(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	beside, err := videosBeside(uri, opt)
	var d *Dataset
	if err == nil {
		d, err = openStores(ctx, s, beside, opt)
	}
	if err != nil {
		if beside != nil {
			store.Close(beside)
		}
		store.Close(s)
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	d.info.URI = robocache.Redact(uri)
	return d, nil
}

// OpenStore opens the dataset at the root of a store. Close of the dataset closes the store.
func OpenStore(ctx context.Context, s store.Store, opt robocache.OpenOptions) (*Dataset, error) {
	return openStores(ctx, s, nil, opt)
}

// openStores opens the dataset in s, with the videos that lie in beside; nil: in s.
func openStores(ctx context.Context, s, beside store.Store, opt robocache.OpenOptions) (d *Dataset, err error) {
	defer guard.Malformed("zarr open", &err)
	uri, apart := s.URI(), beside != nil
	if beside == nil && !hasRoot(ctx, s) && hasBuffer(ctx, s) {
		beside, s = s, guard.Must(store.Sub(s, bufferFolder))
	}
	images := guard.Must(op.Choice(opt.Options, "images", "auto", "raw"))
	unit := guard.Must(op.Choice(opt.Options, "timestamp_unit", "", "s", "ms", "us", "ns"))
	budget := reader.Budget(opt, defaultBudget, smallestBudget)
	t := guard.Must(readTree(ctx, s, budget))
	if len(t.arrays) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: "zarr open", Msg: "no arrays here that could be read", Hint: "name the folder that has .zgroup, .zmetadata or zarr.json"}
	}
	d = &Dataset{tree: t, views: map[string]*view{}, rate: opt.HZ}
	if d.cameras = newCameras(s, budget); beside != nil {
		d.cameras = newCameras(beside, budget)
		d.cameras.close = apart
	}
	d.info = &robocache.Info{URI: uri, Format: "zarr", Version: t.version, Findings: t.findings}
	d.info.Robot, _ = t.attrs["robot_type"].(string)
	if d.rate.Zero() {
		d.rate = rateOf(t.attrs)
	}
	ends := t.arrays["meta/episode_ends"]
	if ends != nil {
		guard.Check(robocache.At(guard.Try(func() { d.readEnds(ctx, ends) }), robocache.Where{"stream": ends.Path}))
		d.describeBuffer(ctx, images)
	} else {
		d.describeGeneric(ctx, images)
	}
	d.findClock(ctx, unit)
	if beside != nil && ends != nil {
		d.findVideos(ctx)
		d.link()
	}
	return d, nil
}

// Info is what the dataset says of itself, and what opening it found.
func (d *Dataset) Info() *robocache.Info { return d.info }

// Store gives the bytes below the dataset.
func (d *Dataset) Store() store.Store { return d.st }

// MemoryBytes is what the dataset holds besides its cache.
func (d *Dataset) MemoryBytes() int64 { return int64(len(d.ends))*8 + int64(len(d.arrays))*512 }

// LimitMemory lowers the budget of decoded chunks; it never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.cache.Limit(bytes)
	d.cameras.lib.Limit(bytes / 8)
}

// Stats gives nil: Zarr stores bring none.
func (d *Dataset) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close releases the store and what is kept.
func (d *Dataset) Close() error {
	d.cache.Clear()
	err := d.cameras.lib.Close()
	if d.cameras.close {
		err = errors.Join(err, store.Close(d.cameras.st))
	}
	return errors.Join(err, store.Close(d.st))
}

func (d *Dataset) find(f robocache.Finding) { d.info.Findings = append(d.info.Findings, f) }

// rateOf reads the attribute that writers of replay buffers use where they say a rate at all.
func rateOf(attrs map[string]any) robocache.Rate {
	r, _ := robocache.RateOf(fmt.Sprint(attrs["fps"])) // a number or a text
	return r
}
