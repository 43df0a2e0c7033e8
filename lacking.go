package robocache

import (
	"context"
	"fmt"
	"slices"
)

// LackingStream is the code of the finding of an episode that lacks a stream of the dataset.
const LackingStream = "missing-stream"

// LackingHint returns the hint of a LackingStream finding and of the error of reading such rows.
func LackingHint() string {
	return LeaveOutHint() + ", or pass " + Option("missing", "pad") + " for zeros under a mask"
}

// LeaveOutHint returns the hint of rows of a stream that cannot be read, and cannot be padded.
func LeaveOutHint() string {
	return "Leave the stream out with " + Option("keys") + ", leave the episode out with " +
		SkipBadEpisodes()
}

// Lacks reports whether an episode of ds, by position, lacks the stream key.
func Lacks(ds Dataset, episode int, key string) bool {
	lacks := ds.Capabilities().Lacks
	return lacks != nil && lacks(episode, key)
}

// PadLacking returns ds with rows without a value (Capabilities.Valid) in place of the streams that
// episodes lack. It returns ds itself if no episode lacks a stream.
func PadLacking(ds Dataset) Dataset {
	if ds.Capabilities().Lacks == nil {
		return ds
	}
	p := &padLacking{Dataset: ds, info: *ds.Info()}
	p.info.Features = slices.Clone(p.info.Features)
	found := false
	for i := range p.info.Features {
		f := &p.info.Features[i]
		for e := 0; e < p.info.Episodes && !f.Masked; e++ {
			f.Masked = Lacks(ds, e, f.Key)
		}
		found = found || f.Masked
		f.OnlyAsked = false
	}
	if !found {
		return ds
	}
	p.info.Findings = slices.Clone(p.info.Findings)
	for i := range p.info.Findings {
		if f := &p.info.Findings[i]; f.Code == LackingStream {
			f.Severity = SeverityWarning // the rows are marked
		}
	}
	p.setCapabilities()
	return p
}

// padLacking is the result of PadLacking.
type padLacking struct {
	Dataset
	info    Info
	offered Capabilities
}

// setCapabilities sets the capabilities: those of the dataset, with rows in place of the streams
// that episodes lack. No recording has these rows, and no episode lacks a stream.
func (p *padLacking) setCapabilities() {
	p.offered = *p.Dataset.Capabilities()
	c := &p.offered
	c.Valid, c.Lacks = p.Valid, nil
	c.Origin, c.Recording = originOf(p.Dataset), nil
	if c.GatherRagged != nil {
		c.GatherRagged = p.GatherRagged
	}
	if c.LeaseFrames != nil {
		c.LeaseFrames = p.LeaseFrames
	}
	if c.Rows != nil {
		c.Rows = p.Rows
	}
}

// Capabilities returns those of the dataset, with rows in place of the streams that episodes lack.
func (p *padLacking) Capabilities() *Capabilities { return &p.offered }

// Info returns the dataset's description, with the streams that some episodes lack marked as
// Masked.
func (p *padLacking) Info() *Info { return &p.info }

// Unwrap returns the dataset itself.
func (p *padLacking) Unwrap() Dataset { return p.Dataset }

// splitRuns calls read for each run of rows whose episodes have the stream, and blank for each
// other run.
func (p *padLacking) splitRuns(
	key string,
	rows []Row,
	blank func(from, to int),
	read func(from, to int) error,
) error {
	for from := 0; from < len(rows); {
		lacks := Lacks(p.Dataset, rows[from].Episode, key)
		to := from + 1
		for to < len(rows) && (rows[to].Episode == rows[to-1].Episode ||
			Lacks(p.Dataset, rows[to].Episode, key) == lacks) {
			to++
		}
		if lacks {
			blank(from, to)
		} else if err := read(from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// Gather copies rows of a stream; rows of episodes that lack it are zero.
func (p *padLacking) Gather(ctx context.Context, key string, rows []Row, dst []byte) error {
	size := 0
	if len(rows) > 0 {
		size = len(dst) / len(rows)
	}
	zero := func(from, to int) { clear(dst[from*size : to*size]) }
	return p.splitRuns(key, rows, zero, func(from, to int) error {
		return p.Dataset.Gather(ctx, key, rows[from:to], dst[from*size:to*size])
	})
}

// Text returns rows of a text stream; rows of episodes that lack it are empty.
func (p *padLacking) Text(ctx context.Context, key string, rows []Row) ([]string, error) {
	out := make([]string, len(rows))
	err := p.splitRuns(key, rows, func(int, int) {}, func(from, to int) error {
		part, err := p.Dataset.Text(ctx, key, rows[from:to])
		copy(out[from:to], part)
		return err
	})
	return out, err
}

// Frames returns images; rows of episodes that lack the stream are Missing.
func (p *padLacking) Frames(ctx context.Context, key string, rows []Row, out []FrameRef) error {
	return p.splitRuns(key, rows, missingFrames(out), func(from, to int) error {
		return p.Dataset.Frames(ctx, key, rows[from:to], out[from:to])
	})
}

func missingFrames(out []FrameRef) func(from, to int) {
	return func(from, to int) {
		for i := from; i < to; i++ {
			out[i] = FrameRef{Missing: true}
		}
	}
}

// LeaseFrames returns images as Frames does, in memory that the dataset leases until the returned
// function is called.
func (p *padLacking) LeaseFrames(
	ctx context.Context, key string, rows []Row, out []FrameRef,
) (func(), error) {
	var ends []func()
	done := func() {
		for _, end := range ends {
			end()
		}
	}
	err := p.splitRuns(key, rows, missingFrames(out), func(from, to int) error {
		end, err := LeaseFrames(ctx, p.Dataset, key, rows[from:to], out[from:to])
		if end != nil {
			ends = append(ends, end)
		}
		return err
	})
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// GatherRagged returns rows of a ragged stream; rows of episodes that lack it have no entries.
func (p *padLacking) GatherRagged(
	ctx context.Context,
	key string,
	rows []Row,
) (data []byte, counts []int, err error) {
	err = p.splitRuns(key, rows,
		func(from, to int) { counts = append(counts, make([]int, to-from)...) },
		func(from, to int) error {
			b, n, err := GatherRagged(ctx, p.Dataset, key, rows[from:to])
			data, counts = append(data, b...), append(counts, n...)
			return err
		})
	return data, counts, err
}

// Valid writes 0 for the rows of episodes that lack the stream.
func (p *padLacking) Valid(ctx context.Context, key string, rows []Row, valid []uint8) error {
	zero := func(from, to int) { clear(valid[from:to]) }
	return p.splitRuns(key, rows, zero, func(from, to int) error {
		return Valid(ctx, p.Dataset, key, rows[from:to], valid[from:to])
	})
}

// Times returns the timestamps of a stream. It returns none for a stream with a separate clock that
// the episode lacks.
func (p *padLacking) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	if key == "" || !Lacks(p.Dataset, episode, key) {
		return p.Dataset.Times(ctx, episode, key)
	}
	if f := p.info.Feature(key); f != nil && f.Clock == "" {
		return p.Dataset.Times(ctx, episode, "")
	}
	return nil, nil
}

// Rows returns the number of rows of a stream with its own clock; 0 if the episode lacks it.
func (p *padLacking) Rows(ctx context.Context, episode int, key string) (int, error) {
	f := p.info.Feature(key)
	if f == nil || f.Clock == "" || !Lacks(p.Dataset, episode, key) {
		if f == nil {
			f = &Feature{Key: key}
		}
		return RowsIn(ctx, p.Dataset, episode, f)
	}
	return 0, nil
}

// WithoutUnasked returns ds without the streams that some episodes lack and that no key names
// (Feature.OnlyAsked), and with a finding for each. It returns ds itself if there are none.
func WithoutUnasked(ds Dataset) Dataset {
	info := ds.Info()
	if !slices.ContainsFunc(info.Features, func(f Feature) bool { return f.OnlyAsked }) {
		return ds
	}
	w := &withoutUnasked{Dataset: ds, info: *info}
	w.info.Features, w.info.Findings = nil, slices.Clone(info.Findings)
	for _, f := range info.Features {
		if !f.OnlyAsked {
			w.info.Features = append(w.info.Features, f)
			continue
		}
		lacking := 0
		for e := range info.Episodes {
			if Lacks(ds, e, f.Key) {
				lacking++
			}
		}
		w.info.Findings = append(w.info.Findings, Finding{
			Severity:     SeverityWarning,
			Code:         "stream-left-out",
			Where:        Where{"stream": f.Key},
			Count:        int64(lacking),
			NotDelivered: f.Key,
			Message: fmt.Sprintf(
				"%d of %d episodes lack the stream and no key names it: it is left out",
				lacking,
				info.Episodes,
			),
			Hint: "Name it in " + Option("keys") + " to require it, or pass " +
				Option("missing", "pad") + " for zeros under a mask",
		})
	}
	w.offered = *ds.Capabilities()
	// A recording also has the streams that are left out.
	w.offered.Origin, w.offered.Recording = originOf(ds), nil
	return w
}

// withoutUnasked is the result of WithoutUnasked.
type withoutUnasked struct {
	Dataset
	info    Info
	offered Capabilities
}

// Capabilities returns those of the dataset, without its recordings.
func (w *withoutUnasked) Capabilities() *Capabilities { return &w.offered }

// Info returns the dataset's description without the streams that are left out.
func (w *withoutUnasked) Info() *Info { return &w.info }

// Unwrap returns the dataset itself.
func (w *withoutUnasked) Unwrap() Dataset { return w.Dataset }
