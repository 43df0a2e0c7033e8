package main

/*
#include <stdint.h>
*/
import "C"

import (
	"encoding/json"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader"
)

type alignArgs struct {
	Episode   int          `json:"episode"`
	Keys      []string     `json:"keys"`
	Align     loader.Align `json:"align"`
	ImageSize []int        `json:"image_size"`
}

// aligner brings the streams of one episode onto one timeline.
type aligner struct {
	*shared
	args    alignArgs
	episode int
	stamps  [][]int64
	targets []int64
	ans     *answer
}

//export rc_align
func rc_align(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a alignArgs
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(handle, "align", func(s *shared) (result, error) {
			e, err := s.at(a.Episode)
			if err != nil {
				return result{}, err
			}
			al := &aligner{shared: s, args: a, episode: e, ans: &answer{}}
			if err := al.run(ctx); err != nil {
				al.ans.drop()
				return result{}, robocache.At(err, robocache.Where{"dataset": s.Info().URI, "episode": e})
			}
			return al.ans.result(), nil
		})
	})
}

func (a *aligner) run(ctx context) error {
	if err := a.timeline(ctx); err != nil {
		return err
	}
	t, err := a.ans.add("times", robocache.Int64, []int{len(a.targets)})
	if err != nil {
		return err
	}
	copy(int64s(t), a.targets)
	var masks []*kernel.Plan
	for i, key := range a.args.Keys {
		f := a.Info().Feature(key)
		plan, err := a.plan(f, key, a.stamps[i])
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": key})
		}
		if err := a.values(ctx, f, key, plan); err != nil {
			return robocache.At(err, robocache.Where{"stream": key})
		}
		masks = append(masks, plan)
	}
	for i, key := range a.args.Keys {
		m, err := a.ans.add(key+"_is_pad", robocache.Bool, []int{len(a.targets)})
		if err != nil {
			return err
		}
		for k, valid := range masks[i].Valid {
			m[k] = 1 - valid
		}
	}
	return nil
}

// timeline reads the stamps and makes the targets.
func (a *aligner) timeline(ctx context) error {
	if len(a.args.Align.Clock) > 0 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "align", Msg: "clock=: the streams of this format have one clock each", Hint: "leave clock out"}
	}
	for _, key := range a.args.Keys {
		t, err := a.Times(ctx, a.episode, key)
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": key})
		}
		if o := int64(a.args.Align.Offset[key]); o != 0 {
			moved := make([]int64, len(t))
			for i, v := range t {
				moved[i] = v + o
			}
			t = moved
		}
		if err := align.CheckStamps(t, key); err != nil {
			return err
		}
		a.stamps = append(a.stamps, t)
	}
	if a.args.Align.Hz == nil {
		if err := json.Unmarshal(a.args.Align.Times, &a.targets); err != nil {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "align", Msg: "times", Want: "a list of int nanoseconds", Err: err}
		}
		return nil
	}
	names, stamps := a.args.Keys, a.stamps
	if x := a.args.Align.Extent; x != "" && x != "intersection" && x != "union" {
		// The extent may be that of a stream which is not itself asked for.
		t, err := a.Times(ctx, a.episode, x)
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": x})
		}
		names, stamps = []string{x}, [][]int64{t}
	}
	t0, t1, err := align.Extent(a.args.Align.Extent, names, stamps)
	if err != nil {
		return err
	}
	if n := align.UniformCount(t0, t1, *a.args.Align.Hz); n > 1<<28 {
		return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "align", Msg: "the timeline is too long", Want: "at most 2^28 rows", Hint: "a lower hz"}
	}
	a.targets = align.Uniform(t0, t1, *a.args.Align.Hz)
	return nil
}

func (a *aligner) plan(f *robocache.Feature, key string, stamps []int64) (*kernel.Plan, error) {
	opt := align.Options{Mode: align.Previous, Stream: key, MaxGap: int64(a.args.Align.MaxGap.Of(key))}
	computable := f != nil && f.Kind == robocache.KindNumeric && f.DType.Float() && !f.Default
	if computable {
		opt.Mode = align.Linear
	}
	var err error
	if name, ok := a.args.Align.Modes[key]; ok {
		if opt.Mode, err = align.ParseMode(name); err != nil {
			return nil, err
		}
	}
	if opt.Mode.Computes() && (f == nil || f.Kind != robocache.KindNumeric || !f.DType.Float()) {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "align", Msg: "mode " + opt.Mode.String() + " computes values, and this stream's cannot be computed with", Hint: "nearest, previous or next"}
	}
	if name := a.args.Align.Edge.Of(key); name != "" {
		if opt.Edge, err = align.ParseEdge(name); err != nil {
			return nil, err
		}
	}
	if opt.Mode == align.Mean {
		period := int64(1e9)
		if a.args.Align.Hz != nil {
			period = a.args.Align.Hz.Nanos(1)
		} else if n := len(a.targets); n > 1 {
			period = max((a.targets[n-1]-a.targets[0])/int64(n-1), 1)
		}
		opt.Before, opt.After = align.HalfWindows(period)
	}
	return align.NewPlan(stamps, a.targets, opt)
}

func (a *aligner) values(ctx context, f *robocache.Feature, key string, plan *kernel.Plan) error {
	switch {
	case f == nil || f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		all, err := a.Text(ctx, key, a.rows(a.episode))
		if err != nil {
			return err
		}
		out := make([]string, plan.Len())
		for i, k := range plan.Kind {
			if k == kernel.Copy {
				out[i] = all[plan.Left[i]]
			}
		}
		a.ans.text(key, textType(f), out)
		return nil
	case f.Kind == robocache.KindNumeric:
		n := a.Len(a.episode)
		src := make([]byte, n*f.RowBytes())
		if err := a.Gather(ctx, key, a.rows(a.episode), src); err != nil {
			return err
		}
		dst, err := a.ans.add(key, f.DType, append([]int{plan.Len()}, rowShape(f)...))
		if err != nil {
			return err
		}
		return kernel.Resample(kernel.Dense(dst, f.DType, plan.Len(), f.Elements()), kernel.Dense(src, f.DType, n, f.Elements()), plan, kernel.Options{Valid: plan.Valid})
	}
	return a.pictures(ctx, key, plan)
}

// pictures decodes the rows that the plan takes. A row without one (policy mask) is black.
func (a *aligner) pictures(ctx context, key string, plan *kernel.Plan) error {
	m, err := loader.NewMap(ctx, a.Dataset, loader.Config{Keys: []string{key}, Episodes: []int{a.episode}, ImageSize: a.args.ImageSize})
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	rows := make([]int64, plan.Len())
	for i, k := range plan.Kind {
		if k == kernel.Copy {
			rows[i] = int64(plan.Left[i])
		}
	}
	b, err := m.Items(ctx, rows)
	if err != nil {
		return err
	}
	t := b.Tensor(key)
	if n := plan.Len(); n > 0 {
		size := len(t.Data) / n
		for i, k := range plan.Kind {
			if k == kernel.Zero {
				clear(t.Data[i*size : (i+1)*size])
			}
		}
	}
	a.ans.batch(b)
	return nil
}
