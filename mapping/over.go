package mapping

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// mappedDataset is a dataset with a mapping applied. It owns the base dataset.
type mappedDataset struct {
	base         robocache.Dataset
	info         robocache.Info
	capabilities robocache.Capabilities
	streams      map[string]*mappedStream
	mapping      *robocache.Mapping
	// source stream whose rows are the episode's rows; "": the base's own rows
	rowSource string
	// mapped stream that gives these rows other timestamps; "": those of rowSource
	rowTimes string
	lengths  []int    // episode lengths if rowSource is set
	tasks    []string // episode tasks if the mapping names a task stream
}

// mappedStream is one stream of the result.
type mappedStream struct {
	feature    robocache.Feature
	parts      []sourcePart
	firstByte  int // first byte of the joined row that is kept
	scale      float64
	timestamps string // stream of the base that holds the timestamps
	unit       int64
	unitErr    error // set if the unit could not be determined
	offset     int64
	drift      robocache.Drift
}

// sourcePart is a stream of the base.
type sourcePart struct {
	key      string
	rowBytes int // bytes per row
}

// isRenamed reports whether the stream is a stream of the base under another name.
func (s *mappedStream) isRenamed() bool {
	return len(s.parts) == 1 && s.firstByte == 0 && s.scale == 0 &&
		s.feature.RowBytes() == s.parts[0].rowBytes
}

// hasOwnTimes reports whether the stream's timestamps differ from those of its source.
func (s *mappedStream) hasOwnTimes() bool {
	return s.timestamps != "" || s.offset != 0 || !s.drift.IsZero()
}

// timestampPrefix begins a clock that names the stream with the timestamps.
const timestampPrefix = "timestamps:"

func timestampKey(clock string) (string, bool) { return strings.CutPrefix(clock, timestampPrefix) }

// Over applies a mapping to a dataset. The returned dataset owns ds and closes it.
func Over(
	ctx context.Context,
	ds robocache.Dataset,
	m *robocache.Mapping,
) (_ robocache.Dataset, err error) {
	if err := checkMapping(m); err != nil {
		return nil, err
	}
	d := &mappedDataset{base: ds, mapping: m, info: *ds.Info(), streams: map[string]*mappedStream{}}
	d.setCapabilities()
	used := map[string]bool{}
	var made []*mappedStream
	keys := make([]string, 0, len(m.Streams))
	for k := range m.Streams {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, key := range keys {
		sm := m.Streams[key]
		s, err := d.newStream(key, &sm)
		if err := robocache.At(err, robocache.Where{"stream": key}); err != nil {
			return nil, err
		}
		for _, p := range s.parts {
			used[p.key] = true
		}
		made = append(made, s)
	}
	// Streams keep the order of the base, by their first source. Streams that the mapping does not
	// name keep their positions.
	base := ds.Info().Features
	place := func(s *mappedStream) int {
		return slices.IndexFunc(
			base,
			func(f robocache.Feature) bool { return f.Key == s.parts[0].key },
		)
	}
	if m.Rest != "drop" {
		for i := range base {
			if f := base[i]; !used[f.Key] {
				if m.Streams[f.Key].From != nil {
					continue // a mapped stream has this name
				}
				made = append(
					made,
					&mappedStream{feature: f, parts: []sourcePart{{f.Key, f.RowBytes()}}},
				)
			}
		}
	}
	slices.SortStableFunc(
		made,
		func(a, b *mappedStream) int { return cmp.Compare(place(a), place(b)) },
	)
	d.info.Features = nil
	for _, s := range made {
		d.streams[s.feature.Key] = s
	}
	for _, s := range made {
		if s.timestamps != "" && m.Streams[s.feature.Key].TimestampUnit == "" {
			d.inferUnit(ctx, s)
		}
	}
	if err := d.setRowClock(ctx, m.Clock); err != nil {
		return nil, err
	}
	for _, s := range made {
		d.info.Features = append(d.info.Features, s.feature)
	}
	d.info.Groups = slices.DeleteFunc(
		slices.Clone(ds.Info().Groups),
		func(g robocache.Group) bool {
			s := d.streams[g.Key]
			return s == nil || s.parts[0].key != g.Key || !s.isRenamed()
		},
	)
	if err := d.findTasks(ctx, d.sourceKey(m.Task)); err != nil {
		return nil, err
	}
	return d, nil
}

// sourceKey returns the key in the base of a stream, which is named by its key in the base or in
// the mapping.
func (d *mappedDataset) sourceKey(name string) string {
	if d.base.Info().Feature(name) != nil {
		return name
	}
	return d.mapping.SourceKey(name)
}

// sourceFeature returns the feature of a stream of the base.
func (d *mappedDataset) sourceFeature(key string) (*robocache.Feature, error) {
	f := d.base.Info().Feature(key)
	if f == nil {
		var known []string
		for i := range d.base.Info().Features {
			known = append(known, d.base.Info().Features[i].Key)
		}
		return nil, robocache.Misuse("map", nil, "the dataset has no stream %s", key).
			WithHint("it has %s", strings.Join(known, ", "))
	}
	return f, nil
}

// newStream returns the stream of one entry of the mapping.
func (d *mappedDataset) newStream(
	key string,
	m *robocache.StreamMapping,
) (_ *mappedStream, err error) {
	bad := func(msg, want, got string) error {
		return robocache.Misuse("map", nil, "%s", msg).Expected(want, got)
	}
	s := &mappedStream{
		scale:  m.Scale,
		offset: m.Offset,
		drift:  m.Drift,
		unit:   unitNanos[cmp.Or(m.TimestampUnit, "s")],
	}
	if s.scale == 1 {
		s.scale = 0
	}
	elements := 0
	for i, from := range m.From {
		f, err := d.sourceFeature(from)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			s.feature = *f
		}
		if len(m.From) > 1 || m.Slice != nil || s.scale != 0 {
			switch {
			case f.Kind != robocache.KindNumeric || f.Ragged():
				return nil, bad(
					"streams that are joined, sliced or scaled",
					"numeric rows of one length",
					from+" of kind "+string(f.Kind),
				)
			case f.DType != s.feature.DType:
				return nil, bad(
					"streams that are joined",
					"one dtype, "+s.feature.DType.String()+" as "+m.From[0],
					from+" of "+f.DType.String(),
				)
			case f.Clock != s.feature.Clock:
				return nil, bad(
					"streams that are joined",
					"one clock, "+fmt.Sprintf("%q", s.feature.Clock),
					from+" on "+fmt.Sprintf("%q", f.Clock),
				)
			}
			s.feature.Masked = s.feature.Masked || f.Masked
		}
		s.parts = append(s.parts, sourcePart{from, f.RowBytes()})
		elements += f.Elements()
	}
	f := &s.feature
	f.Key = key
	if len(m.From) > 1 || m.Slice != nil {
		if m.Slice != nil {
			if m.Slice[1] > elements {
				return nil, bad(
					"slice",
					fmt.Sprintf("an end of at most %d", elements),
					fmt.Sprint(m.Slice[1]),
				)
			}
			s.firstByte = m.Slice[0] * f.DType.Size()
			elements = m.Slice[1] - m.Slice[0]
		}
		f.Shape, f.Names, f.Default = []int{elements}, nil, false
	}
	if s.scale != 0 && !f.DType.Float() {
		return nil, bad("scale", "a floating-point stream", f.DType.String())
	}
	if m.Names != nil {
		if len(m.Names) != f.Elements() {
			return nil, bad(
				"names",
				fmt.Sprintf("%d of them", f.Elements()),
				fmt.Sprint(len(m.Names)),
			)
		}
		f.Names, _ = json.Marshal(m.Names)
	}
	if m.Unit != "" {
		f.Unit = m.Unit
	}
	if len(m.From) > 1 || m.Slice != nil {
		f.Rotations = d.joinedRotations(m)
		f.Interpolation = joinedMode(f, d.base.Info(), m.From)
	}
	if err := applyRotations(f, m); err != nil {
		return nil, err
	}
	if err := d.setRelative(f, m); err != nil {
		return nil, err
	}
	if name, ok := timestampKey(m.Clock); ok {
		name = d.sourceKey(name)
		t, err := d.sourceFeature(name)
		if err != nil {
			return nil, err
		}
		if t.Kind != robocache.KindNumeric || t.Elements() != 1 || t.Ragged() ||
			t.Clock != f.Clock {
			return nil, bad(
				"a stream of timestamps",
				"one number a row, on the clock of "+m.From[0],
				fmt.Sprintf("%s: %s %v on %q", name, t.Kind, t.Shape, t.Clock),
			)
		}
		s.timestamps = name
	}
	if s.hasOwnTimes() {
		f.Clock, f.FPS = key, robocache.Rate{}
		if s.timestamps == "" {
			f.FPS = d.base.Info().Feature(m.From[0]).FPS
		}
	}
	return s, nil
}

// inferUnit finds the unit of a stream's timestamps if the mapping does not state it.
func (d *mappedDataset) inferUnit(ctx context.Context, s *mappedStream) {
	const episodes, rows = 8, 4096
	f := d.base.Info().Feature(s.timestamps)
	usual := "s"
	if !f.DType.Float() {
		usual = ""
	}
	for e := range min(d.info.Episodes, episodes) {
		n, err := robocache.RowsIn(ctx, d.base, e, f)
		n = min(n, rows)
		raw := make([]byte, n*f.RowBytes())
		if err != nil || d.base.Gather(ctx, s.timestamps, robocache.RowsOf(e, 0, n), raw) != nil {
			continue // the error is reported when the episode is read
		}
		g, err := robocache.InferTimeUnit(robocache.Float64s(nil, f.DType, raw), usual, d.info.FPS)
		if err == nil && g.Unit == "" {
			continue
		}
		err = withUnitHint(err)
		where := robocache.Where{"stream": s.timestamps}
		if found := robocache.UnitFinding(g, err, usual, where); found != nil {
			d.info.Findings = append(slices.Clip(d.info.Findings), *found)
		}
		if s.unitErr = err; err == nil {
			s.unit = unitNanos[g.Unit]
		}
		return
	}
}

// withUnitHint adds to an error of InferTimeUnit how a mapping states the unit.
func withUnitHint(err error) error {
	var e *robocache.Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Hint = "State it next to the clock in the mapping: timestamp_unit: s, ms, us or ns; " + c.Hint
	return &c
}

// setRowClock makes the rows of a stream the episode's own rows. key is a key of the dataset or of
// the mapping.
func (d *mappedDataset) setRowClock(ctx context.Context, key string) error {
	info := &d.info
	if key == "" {
		return nil
	}
	source := d.sourceKey(key)
	f, err := d.sourceFeature(source)
	if err != nil {
		return err
	}
	clock, fps := f.Clock, f.FPS
	if s := d.streams[key]; s != nil && source != key && s.hasOwnTimes() {
		d.rowTimes, clock, fps = key, s.feature.Clock, s.feature.FPS
	} else if f.Clock == info.Clock || f.Clock == "" {
		return nil
	}
	was := cmp.Or(info.Clock, "rows")
	for _, s := range d.streams {
		if s.feature.Clock == "" {
			s.feature.Clock = was
		}
	}
	d.rowSource, info.Clock, info.Frames, info.FPS = source, clock, 0, fps
	d.lengths = make([]int, info.Episodes)
	for e := range d.lengths {
		t, err := d.base.Times(ctx, e, source)
		if err != nil {
			return err
		}
		d.lengths[e] = len(t)
		info.Frames += int64(len(t))
	}
	if !slices.ContainsFunc(
		slices.Collect(maps.Values(d.streams)),
		func(s *mappedStream) bool { return s.feature.Clock == clock },
	) {
		return robocache.Misuse(
			"map",
			robocache.Where{"stream": key},
			"clock: no stream that is kept lies on the clock of this one",
		)
	}
	return nil
}
