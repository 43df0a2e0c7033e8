package stats

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// FramePolicy states which images are counted.
type FramePolicy string

const (
	SampledFrames FramePolicy = "sampled" // SampleFrames of each episode, as lerobot does
	AllFrames     FramePolicy = "all"
	NoFrames      FramePolicy = "none"
)

// Choose returns the rows whose images are counted, for an episode of n rows.
func (p FramePolicy) Choose(n int) []int {
	switch {
	case n <= 0 || p == NoFrames:
		return nil
	case p == AllFrames:
		out := make([]int, n)
		for k := range out {
			out[k] = k
		}
		return out
	}
	return SampleFrames(n)
}

// Options are the options of Compute. The zero value is a good default.
type Options struct {
	Keys     []string // nil = every feature that can have statistics
	Episodes []int    // positions; nil = all
	Frames   FramePolicy
	Budget   int64 // bytes for columns and counts; 0 = 256 MiB
	Threads  int   // decoders at once; 0 = the number of CPUs
	// SkipBad leaves episodes out of a stream's statistics if the stream cannot be read there. It
	// adds a finding instead of failing.
	SkipBad bool
	// OnFinding is called for values that are left out and for features without statistics.
	OnFinding func(robocache.Finding)
	// Progress is called after each feature.
	Progress func(done, total int)
	// Read is called with the number of bytes of values that were read. The total exceeds the size
	// of the data if quantiles need another pass.
	Read func(bytes int64)

	counted map[string]*weightedQuantiles // if not nil, gets the quantiles of the images of episodes
}

// setDefaults replaces zero values, and lists all episodes if none are named.
func (o *Options) setDefaults(ds robocache.Dataset) {
	if o.Budget <= 0 {
		o.Budget = 256 << 20
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.Episodes == nil {
		o.Episodes = make([]int, ds.Info().Episodes)
		for i := range o.Episodes {
			o.Episodes[i] = i
		}
	}
}

// Compute computes the statistics of a dataset of any format. Text has no statistics. Images have
// none if there is no decoder; then there is a finding.
func Compute(
	ctx context.Context,
	ds robocache.Dataset,
	opt Options,
) (_ robocache.Stats, err error) {
	opt.setDefaults(ds)
	for _, e := range opt.Episodes {
		if n := ds.Info().Episodes; e < 0 || e >= n {
			return nil, robocache.Misuse(
				"statistics",
				robocache.Where{"position": e},
				"no such episode",
			).
				Expected("0 to "+strconv.Itoa(n-1), strconv.Itoa(e))
		}
	}
	find := func(f robocache.Finding) {
		if opt.OnFinding != nil {
			opt.OnFinding(f)
		}
	}
	if !opt.SkipBad {
		if err := robocache.Whole(ds, opt.Episodes, "statistics",
			robocache.Option("skip_bad", true)+" counts the rest"); err != nil {
			return nil, err
		}
	}
	out := robocache.Stats{}
	for _, k := range opt.Keys {
		if ds.Info().Feature(k) == nil {
			return nil, robocache.Misuse(
				"statistics",
				robocache.Where{"stream": k},
				"the dataset has no stream of that key",
			).
				WithHint("%s", robocache.Nearest(k, ds.Info().Keys()))
		}
	}
	var features []*robocache.Feature
	for i := range ds.Info().Features {
		if f := &ds.Info().Features[i]; opt.Keys == nil || slices.Contains(opt.Keys, f.Key) {
			features = append(features, f)
		}
	}
	for i, f := range features {
		fs, err := computeStream(ctx, ds, f, opt.Episodes, &opt, find)
		if opt.SkipBad && robocache.Bad(err) {
			var good []int
			for _, e := range opt.Episodes {
				if _, err := computeStream(
					ctx,
					ds,
					f,
					[]int{e},
					&opt,
					func(robocache.Finding) {},
				); err == nil {
					good = append(good, e)
				} else if !robocache.Bad(err) {
					return nil, robocache.At(err, robocache.Where{"stream": f.Key})
				} else {
					index := ds.Info().EpisodeIndex(e)
					find(robocache.Finding{
						Severity: robocache.SeverityError,
						Code:     "episode-skipped",
						Where:    robocache.Where{"stream": f.Key, "episode": index},
						Message:  fmt.Sprintf("episode %d is left out: %v", index, err),
					})
				}
			}
			if len(good) > 0 {
				fs, err = computeStream(ctx, ds, f, good, &opt, find)
			}
		}
		if err := robocache.At(err, robocache.Where{"stream": f.Key}); err != nil {
			return nil, err
		}
		if fs != nil {
			out[f.Key] = fs
		}
		if opt.Progress != nil {
			opt.Progress(i+1, len(features))
		}
	}
	return out, nil
}

// nonFiniteFinding reports values of a stream that are left out.
func nonFiniteFinding(key string, n int64) robocache.Finding {
	return robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "non-finite-values",
		Where:    robocache.Where{"stream": key},
		Message:  "values that are NaN or infinite take no part in the statistics",
		Count:    n,
	}
}

// computeStream computes the statistics of a stream over some episodes. It returns nil if the
// stream has none.
func computeStream(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	episodes []int,
	opt *Options,
	find func(robocache.Finding),
) (*robocache.FeatureStats, error) {
	switch f.Kind {
	case robocache.KindNumeric, robocache.KindPointCloud:
		blocks, shape, err := blocksOf(ctx, ds, f, episodes, opt.Budget)
		if err != nil {
			return nil, err
		}
		if opt.Read != nil {
			all := blocks
			blocks = func(ctx context.Context, yield func([]byte) error) error {
				return all(ctx, func(b []byte) error { opt.Read(int64(len(b))); return yield(b) })
			}
		}
		fs, left, err := Numeric(ctx, f.DType, shape, blocks, opt.Budget)
		if err == nil && left > 0 {
			find(nonFiniteFinding(f.Key, left))
		}
		return fs, err
	case robocache.KindImage, robocache.KindVideo:
		if opt.Frames == NoFrames {
			if opt.Keys != nil {
				find(
					robocache.Finding{
						Severity: robocache.SeverityInfo,
						Code:     "no-image-statistics",
						Where:    robocache.Where{"stream": f.Key},
						Message: "no statistics of this camera: none of its frames was to be " +
							"looked at",
					},
				)
			}
			return nil, nil
		}
		_, err := video.ActiveBackend()
		if f.Kind != robocache.KindVideo || err == nil {
			p := NewLook(ds, opt.Frames, opt.Threads)
			defer p.Close()
			if opt.counted != nil {
				quantiles := &weightedQuantiles{}
				opt.counted[f.Key] = quantiles
				p.onEpisode = func(one *Pixels) {
					if one.Frames > 0 {
						quantiles.addEpisode(one.episodeQuantiles(), float64(one.Frames))
					}
				}
			}
			all, looked := p.Episodes(ctx, f, episodes)
			if looked == nil {
				fs := all.Stats()
				if fs == nil {
					find(
						robocache.Finding{
							Severity: robocache.SeverityInfo,
							Code:     "no-image-statistics",
							Where:    robocache.Where{"stream": f.Key},
							Message: "no statistics of this camera: its rows have no images, " +
								"or depth in floats, of which none are counted",
						},
					)
				}
				return fs, nil
			}
			if err = looked; !errors.Is(err, robocache.ErrUnsupported) {
				return nil, err
			}
		}
		find(
			robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "no-image-statistics",
				Where:    robocache.Where{"stream": f.Key},
				Message:  "no statistics of this camera: " + err.Error(),
			},
		)
	}
	return nil, nil
}

// Look counts images of a dataset. The caller must call Close, which ends its decoders.
type Look struct {
	ds      robocache.Dataset
	lib     *video.Library
	pool    *video.Pool
	policy  FramePolicy
	threads int

	onEpisode func(*Pixels) // if not nil, called by Episodes with the counts of each episode
}

// NewLook returns a counter of images of a dataset.
func NewLook(ds robocache.Dataset, policy FramePolicy, threads int) *Look {
	return &Look{
		ds:      ds,
		lib:     video.LibraryOf(ds),
		policy:  policy,
		threads: max(1, threads),
		pool:    video.NewPool(0),
	}
}

// Close ends the decoders.
func (l *Look) Close() { _ = l.pool.Close() }

// Episodes counts the images of some episodes together.
func (l *Look) Episodes(
	ctx context.Context,
	f *robocache.Feature,
	episodes []int,
) (*Pixels, error) {
	all := l.policy.Images(f)
	for _, e := range episodes {
		p, err := l.Episode(ctx, f, e)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"episode": l.ds.Info().EpisodeIndex(e)})
		}
		if all.Merge(p); l.onEpisode != nil {
			l.onEpisode(p)
		}
	}
	return all, nil
}

// Episode counts the images of one episode that the policy chooses. Rows without an image are
// ignored.
func (l *Look) Episode(
	ctx context.Context,
	f *robocache.Feature,
	episode int,
) (_ *Pixels, err error) {
	var rows []robocache.Row
	n, err := rowsIn(ctx, l.ds, f, episode)
	if err != nil {
		return nil, err
	}
	for _, k := range l.policy.Choose(n) {
		rows = append(rows, robocache.Row{Episode: episode, Index: k})
	}
	all := l.policy.Images(f)
	const block = 256 // rows per block, because still images are held with their bytes
	for len(rows) > 0 {
		part := rows[:min(block, len(rows))]
		if f.Kind == robocache.KindVideo {
			part = rows
		}
		rows = rows[len(part):]
		refs := make([]robocache.FrameRef, len(part))
		if err := l.ds.Frames(ctx, f.Key, part, refs); err != nil {
			return nil, err
		}
		if err := l.countImages(ctx, f, refs, part, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Frames counts the frames at refs.
func (l *Look) Frames(
	ctx context.Context,
	f *robocache.Feature,
	refs []robocache.FrameRef,
) (_ *Pixels, err error) {
	all := l.policy.Images(f)
	if err := l.countImages(ctx, f, refs, make([]robocache.Row, len(refs)), all); err != nil {
		return nil, err
	}
	return all, nil
}

// countImages counts images with several decoders. Each decoder has its own counters, which are
// added at the end.
func (l *Look) countImages(
	ctx context.Context,
	f *robocache.Feature,
	refs []robocache.FrameRef,
	rows []robocache.Row,
	all *Pixels,
) error {
	spec := &video.Spec{Pixel: video.RGB8}
	if all.isDepth() {
		spec.Pixel = video.Gray16
	}
	idle := make(chan *Pixels, l.threads)
	idle <- all
	err := video.EachFrame(
		ctx,
		l.lib,
		refs,
		video.Each{Pool: l.pool, Threads: l.threads},
		func(at []int, pic video.Frame) (err error) {
			ref := &refs[at[0]]
			if pic == nil && ref.Missing {
				return nil
			}
			var own *Pixels
			select {
			case own = <-idle:
			default:
				own = all.Empty()
			}
			defer func() { idle <- own }()
			if pic == nil {
				return robocache.At(own.AddStill(ref), robocache.Where{"row": rows[at[0]].Index})
			}
			if own.buf, err = video.ConvertTo(own.buf, pic, spec); err != nil {
				return err
			}
			width, _ := pic.Size()
			if own.isDepth() {
				own.Add16(own.buf, width)
			} else {
				own.Add8(own.buf, width)
			}
			return nil
		},
	)
	close(idle)
	for own := range idle {
		if own != all {
			all.Merge(own)
		}
	}
	return robocache.At(err, robocache.Where{"stream": f.Key})
}
