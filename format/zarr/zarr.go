package zarr

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// op is the name of the format in errors.
const op = reader.Op("zarr")

var options = map[string]string{
	"images": "auto (default): float arrays of images that hold 0 to 255 are given as " +
		"uint8 pixels; raw: as the numbers they are",
	"timestamp_unit": "of data/timestamp: s, ms, us or ns (default: its attribute unit, else by " +
		"their magnitude)",
}

func init() {
	robocache.Register(
		robocache.Format{
			Name:       "zarr",
			Extensions: []string{".zip"},
			Detect:     Detect,
			Options:    options,
			Write:      Write,
			Keeps:      func(f *robocache.Feature) bool { return whyDropped(f) == "" },
			Sharding:   &sharding,
			Open:       reader.Opener(Open),
		},
	)
}

// Detect reports whether the metadata of a Zarr group or array is present, in a folder or in an
// archive whose name ends in .zip.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
	s, err := openStore(ctx, uri, opt)
	if err != nil {
		if errors.Is(err, robocache.ErrMisuse) || errors.Is(err, robocache.ErrMalformed) {
			return false, nil // a file of another format, or not a zip archive
		}
		return false, err
	}
	defer store.Close(s)
	return hasRoot(ctx, s) || hasBuffer(ctx, s), nil
}

// Dataset is an open Zarr store.
type Dataset struct {
	*tree
	reader.Base
	ends       []int64 // cumulative ends of the episodes of a replay buffer, starting with 0
	views      map[string]*view
	timestamps *view // nil if there is no clock
	unit       int64 // ns of one timestamp
	unitErr    error // set if the unit cannot be determined
	rate       robocache.Rate
	tasks      []string // by episode, if the store contains tasks
	taskKey    string   // key of the text stream with the task
	cameras    cameras
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the store at uri: a folder, a .zip file, or http with consolidated metadata.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	s, err := openStore(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	beside, err := videosBeside(ctx, uri, opt)
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
	d.About.URI = robocache.Redact(uri)
	return d, nil
}

// openStores opens the dataset in s with the videos in beside. If beside is nil, the videos are in
// s.
func openStores(
	ctx context.Context,
	s, beside store.Store,
	opt robocache.OpenOptions,
) (d *Dataset, err error) {
	defer crash.Recover("zarr open", &err)
	uri, apart := s.URI(), beside != nil
	if beside == nil && !hasRoot(ctx, s) && hasBuffer(ctx, s) {
		sub, err := store.Sub(s, bufferFolder)
		if err != nil {
			return d, err
		}
		beside, s = s, sub
	}
	images, unit := "auto", ""
	if err := op.Settle(opt.Options, options,
		map[string]reader.Set{
			"images":         reader.Text(&images, "auto", "raw"),
			"timestamp_unit": reader.Text(&unit, "", "s", "ms", "us", "ns"),
		}); err != nil {
		return d, err
	}
	budget := reader.Budget(opt, defaultBudget, smallestBudget)
	t, err := readTree(ctx, s, budget)
	if err != nil {
		return d, err
	}
	if len(t.arrays) == 0 {
		return nil, robocache.NotFound("zarr open", nil, "no arrays here that could be read").
			WithHint("name the folder that has .zgroup, .zmetadata or zarr.json")
	}
	d = &Dataset{tree: t, Base: reader.Base{Bytes: t.st}, views: map[string]*view{}, rate: opt.HZ}
	d.Offered = robocache.Capabilities{
		Diagnose:    d.Diagnose,
		Lacks:       d.Lacks,
		LimitMemory: d.LimitMemory,
		Origin:      d.Origin,
		Rows:        d.Rows,
		Valid:       d.Valid,
	}
	if d.cameras = newCameras(s, budget); beside != nil {
		d.cameras = newCameras(beside, budget)
		d.cameras.close = apart
	}
	d.About = &robocache.Info{URI: uri, Format: "zarr", Version: t.version, Findings: t.findings}
	d.About.Robot, _ = t.attrs["robot_type"].(string)
	if d.rate.Zero() {
		d.rate = rateOf(t.attrs)
	}
	ends := t.arrays["meta/episode_ends"]
	if ends != nil {
		if err := robocache.At(d.readEnds(ctx, ends), robocache.Where{"stream": ends.Path}); err !=
			nil {
			return d, err
		}
		if err := d.describeBuffer(ctx, images); err != nil {
			return d, err
		}
	} else {
		if err := d.describeGeneric(ctx, images); err != nil {
			return d, err
		}
	}
	if err := d.findClock(ctx, unit, !opt.HZ.Zero()); err != nil {
		return d, err
	}
	if beside != nil && ends != nil {
		if err := d.findVideos(ctx); err != nil {
			return d, err
		}
		d.linkViews()
		d.reportLacking()
	}
	return d, nil
}

// MemoryBytes returns the memory that the dataset uses in addition to its cache.
func (d *Dataset) MemoryBytes() int64 { return int64(len(d.ends))*8 + int64(len(d.arrays))*512 }

// LimitMemory lowers the budget of decoded chunks; it never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.cache.Limit(bytes)
	d.cameras.lib.Limit(bytes / 8)
}

// Close closes the store and clears the cache.
func (d *Dataset) Close() error {
	d.cache.Clear()
	err := d.cameras.lib.Close()
	if d.cameras.close {
		err = errors.Join(err, store.Close(d.cameras.st))
	}
	return errors.Join(err, store.Close(d.st))
}

func (d *Dataset) addFinding(f robocache.Finding) { d.About.Findings = append(d.About.Findings, f) }

// rateOf returns the rate in the attribute that writers of replay buffers use.
func rateOf(attrs map[string]any) robocache.Rate {
	r, _ := robocache.RateOf(fmt.Sprint(attrs["fps"])) // a number or a text
	return r
}

// findClock determines the timestamps of the rows (zarr.A5). rateStated reports that the caller
// sets the rate.
func (d *Dataset) findClock(ctx context.Context, unit string, rateStated bool) error {
	v := d.views["timestamp"]
	usable, err := d.examineClock(ctx, rateStated)
	if err != nil {
		return err
	}
	if !usable {
		d.About.FPS = d.rate // if it is zero, a request for timestamps is an error that explains it
		return nil
	}
	if own, ok := v.a.Attrs["unit"].(string); ok && unit == "" && robocache.TimeUnits[own] != 0 {
		unit = own
	}
	usual := "s"
	if !v.f.DType.Float() {
		usual = "ns"
	}
	d.timestamps, d.unit = v, 1
	if unit == "" {
		unit = d.inferUnit(ctx, usual)
	}
	d.unit = robocache.TimeUnits[unit]
	v.f.Unit = unit
	if v.f.DType == robocache.Float32 {
		d.addFinding(
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "coarse-timestamps",
				Where:    robocache.Where{"stream": "timestamp"},
				Message: "timestamps kept as float32: after a day they are a hundredth of a " +
					"second apart",
			},
		)
	}
	if d.rate.Zero() && d.unitErr == nil {
		if err := d.guessRate(ctx); err != nil {
			return err
		}
	}
	d.About.FPS = d.rate
	for i := range d.About.Features {
		d.About.Features[i].FPS = d.rate
	}
	return nil
}

// inferUnit infers the unit of data/timestamp from the first episode that determines it.
func (d *Dataset) inferUnit(ctx context.Context, usual string) string {
	a := d.timestamps.a
	for e := range min(len(d.ends)-1, 16) {
		values, err := d.rawTimes(ctx, a, e)
		if err != nil || values == nil {
			continue // reported when the episode is read
		}
		g, err := robocache.InferTimeUnit(values, usual, d.rate)
		if err == nil && g.Unit == "" {
			continue
		}
		if f := robocache.UnitFinding(g, err, usual, robocache.Where{"stream": "timestamp"}); f !=
			nil {
			d.addFinding(*f)
		}
		if d.unitErr = err; err == nil {
			return g.Unit
		}
		break
	}
	return usual
}

// guessRate sets the displayed rate if the first episode's timestamps have a constant step. It does
// not change the timestamps.
func (d *Dataset) guessRate(ctx context.Context) error {
	for e := range min(len(d.ends)-1, 16) {
		n := min(d.Len(e), 1000)
		if n < 3 {
			continue
		}
		t, err := d.timestampsOf(ctx, e, n)
		if robocache.Bad(err) {
			continue // reported when the episode is read
		}
		if err != nil {
			return err
		}
		hz := float64(n-1) / (float64(t[n-1]-t[0]) / 1e9)
		if r := math.Round(hz); r >= 1 && math.Abs(hz-r)/r < 0.01 {
			d.rate = robocache.Rate{Num: int64(r), Den: 1}
		}
		return nil
	}
	return nil
}

// timestampsOf reads the first n timestamps of an episode.
func (d *Dataset) timestampsOf(ctx context.Context, episode, n int) (_ []int64, err error) {
	defer robocache.LocateIn(&err, "stream", "timestamp")
	defer robocache.LocateIn(&err, "episode", episode)
	if err := d.unitErr; err != nil {
		return nil, err
	}
	a := d.timestamps.a
	if int64(a.Shape[0]) < d.ends[episode]+int64(n) {
		return nil, bad("the timestamps end before the episode")
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = int(d.ends[episode]) + i
	}
	b := make([]byte, n*a.Type.Size)
	if err := d.gatherRows(ctx, a, rows, b); err != nil {
		return nil, err
	}
	out := make([]int64, n)
	wrong := func(i int, got any) error {
		return robocache.Malformed("zarr times", robocache.Where{"row": i}, "").
			Expected("a time of 64 bits of nanoseconds", fmt.Sprint(got))
	}
	if a.Type.DType().Float() {
		for i, f := range robocache.Float64s(nil, a.Type.DType(), b) {
			// Whole units are converted separately, because the product of an epoch in seconds and
			// 1e9 would be rounded.
			whole, rest := math.Modf(f)
			if math.IsNaN(f) || math.Abs(whole) > float64(math.MaxInt64/d.unit-1) {
				if err := wrong(i, f); err != nil {
					return nil, err
				}
			}
			out[i] = int64(whole)*d.unit + int64(math.RoundToEven(rest*float64(d.unit)))
		}
		return out, nil
	}
	for i, t := range robocache.Int64s(nil, a.Type.DType(), b) {
		if t > math.MaxInt64/d.unit || t < math.MinInt64/d.unit || t < 0 && a.Type.Kind == 'u' {
			if err := wrong(i, t); err != nil {
				return nil, err
			}
		}
		out[i] = t * d.unit
	}
	return out, nil
}

// Times returns the timestamps of a stream's rows in an episode.
func (d *Dataset) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer crash.Recover("zarr times", &err)
	if err := op.Episode(len(d.ends)-1, episode); err != nil {
		return out, err
	}
	var v *view
	if key != "" {
		if v = d.views[key]; v == nil && d.cameras.cams[key] == nil {
			return nil, op.NoStream(key)
		}
	}
	n := d.rowCount(v, episode)
	if d.timestamps != nil && (v == nil || v.f.Clock == "") {
		return d.timestampsOf(ctx, episode, n)
	}
	// The length comes from metadata. Rows are at most 2^31 (describeArray, readEnds), so their
	// timestamps may need 16 GiB. They are returned only if an array has the data.
	if v == nil || v.a.Shape[0] < n {
		for _, other := range d.views {
			if other.f.Clock == "" && int64(other.a.Shape[0]) >= d.ends[episode]+int64(n) {
				v = other
				break
			}
		}
		if v == nil {
			return nil, robocache.At(
				malformed("no array reaches the episode's end"),
				robocache.Where{"episode": episode},
			)
		}
	}
	if n > 1<<26 {
		return nil, robocache.ResourceLimit("zarr times", robocache.Where{"episode": episode}, "").
			Expected(fmt.Sprintf("at most %d rows without a clock", 1<<26), fmt.Sprint(n))
	}
	rate := d.rate
	if rate.Zero() {
		return nil, d.About.NoClock(
			"zarr times",
			robocache.Where{"stream": key},
			"the store has neither data/timestamp nor an attribute fps",
		)
	}
	return reader.Grid(rate, n), ctx.Err()
}
