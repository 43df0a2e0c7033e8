package align

import (
	"fmt"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Mode says how a value between two samples is made.
type Mode = kernel.Mode

// Edge says which value a row gets that lies outside the data or in a gap.
type Edge = kernel.Edge

const (
	Linear   = kernel.Linear
	Nearest  = kernel.Nearest
	Previous = kernel.Previous
	Next     = kernel.Next
	Slerp    = kernel.Slerp
	Angle    = kernel.Angle
	Mean     = kernel.Mean

	EdgeClamp       = kernel.Clamp
	EdgeMask        = kernel.Mask
	EdgeExtrapolate = kernel.Extrapolate
	EdgeError       = kernel.ErrorEdge
)

// ParseMode finds a mode by its name.
func ParseMode(name string) (Mode, error) { return kernel.ParseMode(name) }

// ParseEdge finds an edge policy by its name.
func ParseEdge(name string) (Edge, error) { return kernel.ParseEdge(name) }

// maxTime bounds stamps and targets, so that no difference of two overflows.
const maxTime = 1 << 62

// Options say how targets are found among stamps.
type Options struct {
	Mode          Mode
	Edge          Edge
	MaxGap        int64  // ns; 0 = any gap is bridged
	Before, After int64  // mean: the window [t-Before, t+After); see HalfWindows
	Stream        string // for error messages
}

// HalfWindows splits a target period into the two half windows of mean.
func HalfWindows(period int64) (before, after int64) { return period / 2, period - period/2 }

// NewPlan finds the source samples of each target. src must not decrease; targets may come in any order.
func NewPlan(src, targets []int64, opt Options) (*kernel.Plan, error) {
	if err := CheckStamps(src, opt.Stream); err != nil {
		return nil, err
	}
	if opt.Mode > Mean {
		return nil, opt.fail(robocache.ErrMisuse, nil, "Invalid mode", "a known mode", opt.Mode.String())
	}
	if opt.Edge > EdgeError {
		return nil, opt.fail(robocache.ErrMisuse, nil, "Invalid edge", "a known edge policy", opt.Edge.String())
	}
	if opt.MaxGap < 0 {
		return nil, opt.fail(robocache.ErrMisuse, nil, "invalid max_gap", "0 (none) or more ns", strconv.FormatInt(opt.MaxGap, 10))
	}
	if opt.Mode == Mean && (opt.Before < 0 || opt.After < 0 || opt.Before > maxTime || opt.After > maxTime || opt.Before == 0 && opt.After == 0) {
		return nil, opt.fail(robocache.ErrMisuse, nil, "mean needs a window", "before and after ≥ 0, not both 0", fmt.Sprintf("%d, %d", opt.Before, opt.After))
	}
	n := len(targets)
	p := &kernel.Plan{
		Mode: opt.Mode, Sources: len(src),
		Kind: make([]kernel.Kind, n), Left: make([]int32, n), Right: make([]int32, n),
		Weight: make([]float64, n), Valid: make([]uint8, n),
	}
	f := finder{src: src, opt: opt, p: p}
	f.first, f.last = ends(src)
	ub := 0
	for i, t := range targets {
		if t <= -maxTime || t >= maxTime {
			return nil, opt.fail(robocache.ErrMalformed, robocache.Where{"row": i}, "target time outside ±2^62 ns", "", strconv.FormatInt(t, 10))
		}
		ub = upperFrom(src, ub, t)
		if err := f.row(i, t, ub); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// CheckStamps proves that the stamps of a stream do not decrease and are in range; the error names the stream and the first bad index.
func CheckStamps(src []int64, stream string) error {
	opt := Options{Stream: stream}
	if len(src) > math.MaxInt32 {
		return opt.fail(robocache.ErrResourceLimit, nil, "too many samples", "at most 2^31-1", strconv.Itoa(len(src)))
	}
	for i, t := range src {
		if t <= -maxTime || t >= maxTime {
			return opt.fail(robocache.ErrMalformed, robocache.Where{"index": i}, "timestamp outside ±2^62 ns", "", strconv.FormatInt(t, 10))
		}
		if i > 0 && t < src[i-1] {
			return opt.fail(robocache.ErrMalformed, robocache.Where{"index": i}, "timestamps must not decrease", fmt.Sprintf("at least %d", src[i-1]), strconv.FormatInt(t, 10))
		}
	}
	return nil
}

func (o Options) fail(class error, where robocache.Where, msg, want, got string) error {
	if where == nil {
		where = robocache.Where{}
	}
	if o.Stream != "" {
		where["stream"] = o.Stream
	}
	if want == "" && got != "" {
		msg, got = msg+": "+got, ""
	}
	return &robocache.Error{Class: class, Op: "align", Where: where, Msg: msg, Want: want, Got: got}
}

// upperFrom is the number of stamps ≤ t. It gallops from the answer of the row before: ascending targets cost O(S + T)
// in all, any other order O(log S) a row.
func upperFrom(src []int64, from int, t int64) int {
	lo, hi := 0, len(src) // invariant: src[lo-1] ≤ t < src[hi]
	if from > 0 && src[from-1] > t {
		hi = from - 1
	} else {
		lo = from
		for step := 1; lo+step <= len(src); step *= 2 {
			if src[lo+step-1] > t {
				hi = lo + step - 1
				break
			}
			lo += step
		}
	}
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if src[m] <= t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// lower is the number of stamps < t.
func lower(src []int64, t int64) int {
	lo, hi := 0, len(src)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if src[m] < t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}
