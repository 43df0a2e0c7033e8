package plan

import (
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/video"
)

// deferOps makes columns raw if raw is configured and the remaining operations are equal in every
// source of a batch.
func deferOps(sources []*Source) {
	if !sources[0].Config.Raw {
		return
	}
	for _, first := range sources[0].Columns {
		op := deferredOp(first)
		columns := make([]*column.Column, len(sources))
		for k, src := range sources {
			c := src.Column(first.Key)
			if c == nil || op == nil || src.PaddedRows[c.Key] != nil ||
				!op.CanShareLaunch(deferredOp(c), first, c) {
				op = nil
				break
			}
			columns[k] = c
		}
		if op == nil {
			continue
		}
		for _, c := range columns {
			columnOp := *op
			columnOp.Norm = c.Normalization()
			for _, one := range c.Alternatives() {
				one.Deferred, one.Norm = &columnOp, nil
				if i := one.Image(); i != nil {
					i.KeepStoredBytes()
				} else {
					one.SetDType(one.StoredDType)
				}
			}
		}
	}
}

// deferredOp returns the operations that a raw column leaves to a device. It returns nil if the
// column cannot be raw, or if no operation would remain.
func deferredOp(c *column.Column) *column.DeviceOp {
	op := &column.DeviceOp{
		OutDType: c.OutDType,
		Elements: c.Elements,
		Norm:     c.Normalization(),
		HasPlan:  c.Time != nil,
	}
	if i := c.Image(); i != nil {
		op.HasDraws, op.IsUnitRange = i.Augment != nil, i.Augment == nil
		op.HasPlan = op.HasPlan && op.IsUnitRange
		if c.Elements == 0 || op.IsUnitRange && i.Spec.Pixel != video.RGBFloat32 {
			return nil
		}
		return op
	}
	rows := c.Table()
	switch {
	case len(c.Alternatives()) > 1: // their rules may differ
		return nil
	case c.Elements == 0 || rows != nil && (rows.Mirror != nil || rows.NoiseDeviation > 0 ||
		len(rows.ZeroBeyond) > 0):
		return nil
	case !c.IsNumericStream() || !c.StoredDType.Float() || !c.OutDType.Float():
		return nil
	}
	isFinished := c.Norm == nil && c.StoredDType == c.OutDType
	if c.Time == nil {
		if isFinished {
			return nil
		}
		return op
	}
	// The host computes mean and sum, whose rows have any number of samples, and slerp, whose
	// validity depends on the values.
	mode := c.Time.Options.Mode
	switch {
	case mode == kernel.Mean, mode == kernel.ModeSum, mode == kernel.Slerp,
		!mode.Computes() && isFinished:
		return nil
	}
	op.HasPairs, op.Rule = true, c.Time.Rule
	return op
}
