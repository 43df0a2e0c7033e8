package align

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Mode states how a value between two samples is computed.
type Mode = kernel.Mode

// Edge states which value a row outside the data or inside a gap gets.
type Edge = kernel.Edge

const (
	Linear   = kernel.Linear
	Nearest  = kernel.Nearest
	Previous = kernel.Previous
	Next     = kernel.Next
	Slerp    = kernel.Slerp
	Angle    = kernel.Angle
	Mean     = kernel.Mean
	Sum      = kernel.ModeSum

	EdgeClamp       = kernel.Clamp
	EdgeMask        = kernel.Mask
	EdgeExtrapolate = kernel.Extrapolate
	EdgeError       = kernel.ErrorEdge
)

// maxTime bounds timestamps and targets, so that the difference of two does not overflow.
const maxTime = kernel.MaxTime

// Options states how targets are found among timestamps.
type Options struct {
	Mode   Mode
	Edge   Edge
	MaxGap int64 // ns; 0 = no limit
	// Before and After are the window [t-Before, t+After) of mean; see HalfWindows. Under sum a row
	// covers [t, t+After); 0 = up to the next target.
	Before, After int64
	// a value holds until the next one, and the first also before it, so every target is valid
	// (robocache.Feature.Latched)
	Hold   bool
	Stream string // in errors
	Causality
}

// HalfWindows divides a target period into the two half windows of mean.
func HalfWindows(period int64) (before, after int64) { return period / 2, period - period/2 }

// NewPlan finds the source samples of each target (kernel.NewPlan). Errors name the stream.
func NewPlan(src, targets []int64, opt Options) (*kernel.Plan, error) {
	if opt.Mode == Sum && opt.After == 0 {
		return opt.sumsBetween(src, targets)
	}
	rule := opt.kernelRule(src)
	p, err := kernel.NewPlan(src, targets, rule)
	if err != nil {
		return nil, inStream(err, opt.Stream)
	}
	opt.holdValues(p)
	return p, nil
}

// sumsBetween returns a plan whose rows each cover the time up to the next target. The last row is
// as long as the one before it.
func (o *Options) sumsBetween(src, targets []int64) (*kernel.Plan, error) {
	lengths := make([]int64, len(targets))
	for i := range targets {
		from := min(i, max(len(targets)-2, 0))
		if to := from + 1; to < len(targets) {
			lengths[i] = targets[to] - targets[from]
		}
		if lengths[i] <= 0 {
			return nil, o.streamError(
				robocache.ErrMisuse,
				robocache.Where{"row": i},
				"mode sum: a row covers the time up to the next one",
				"two or more ascending times, or hz",
				"other times",
			)
		}
	}
	p := &kernel.Plan{
		Kind: make(
			[]kernel.Kind,
			len(targets),
		),
		Left:   make([]int32, len(targets)),
		Right:  make([]int32, len(targets)),
		Weight: make([]float64, len(targets)),
		Valid:  make([]uint8, len(targets)),
	}
	return p, o.FillSums(p, src, targets, lengths)
}

// FillSums is Fill for the mode Sum. Row i covers the time from targets[i] to
// targets[i]+lengths[i].
func (o *Options) FillSums(p *kernel.Plan, src, targets, lengths []int64) error {
	rule := o.kernelRule(src)
	return inStream(p.FillSums(src, targets, lengths, &rule), o.Stream)
}

// Fill is NewPlan in existing slices, for timestamps that were checked (CheckTimestamps).
func (o *Options) Fill(p *kernel.Plan, src, targets []int64) error {
	rule := o.kernelRule(src)
	if err := p.Fill(src, targets, &rule); err != nil {
		return inStream(err, o.Stream)
	}
	o.holdValues(p)
	return nil
}

func (o *Options) kernelRule(src []int64) kernel.Rule {
	if o.Hold && len(src) > 0 {
		return kernel.Rule{Mode: Previous}
	}
	return kernel.Rule{
		Mode:   o.Mode,
		Edge:   o.Edge,
		MaxGap: o.MaxGap,
		Before: o.Before,
		After:  o.After,
	}
}

func (o *Options) holdValues(p *kernel.Plan) {
	if o.Hold && p.Sources > 0 {
		for i := range p.Valid {
			p.Valid[i] = 1
		}
	}
}

// CheckTimestamps rejects timestamps that decrease or are out of range. The error names the stream
// and the first bad index.
func CheckTimestamps(src []int64, stream string) error {
	return inStream(kernel.CheckTimestamps(src), stream)
}

func inStream(err error, stream string) error {
	if stream == "" || err == nil {
		return err
	}
	return robocache.At(err, robocache.Where{"stream": stream})
}

func (o Options) streamError(class error, where robocache.Where, msg, want, got string) error {
	if where == nil {
		where = robocache.Where{}
	}
	if o.Stream != "" {
		where["stream"] = o.Stream
	}
	if want == "" && got != "" {
		msg, got = msg+": "+got, ""
	}
	return robocache.NewError(class, "align", where, "%s", msg).Expected(want, got)
}
