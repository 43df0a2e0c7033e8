package column

import (
	"slices"
)

// CanShareLaunch reports whether columns of two sources can be finished by one kernel launch. They
// can if one normalization and one rule apply to the rows of both.
func (op *DeviceOp) CanShareLaunch(o *DeviceOp, c, d *Column) bool {
	if o == nil || op.HasDraws != o.HasDraws || (op.Norm == nil) != (o.Norm == nil) {
		return false
	}
	if op.HasDraws {
		a, b := c.Image(), d.Image()
		f, g := &a.Augment.Form, &b.Augment.Form
		if a.Width != b.Width || a.Height != b.Height || f.Crop != g.Crop || f.Scale != g.Scale ||
			f.Rotates != g.Rotates || f.ChannelsLast != g.ChannelsLast {
			return false
		}
	}
	if !hasEqualNorm(op.Norm, o.Norm) {
		return false
	}
	return op.OutDType == o.OutDType && op.Elements == o.Elements &&
		op.IsUnitRange == o.IsUnitRange && op.HasPairs == o.HasPairs &&
		op.Rule.Mode == o.Rule.Mode && op.Rule.Period == o.Rule.Period &&
		c.StoredDType == d.StoredDType && (c.Time == nil) == (d.Time == nil)
}

// hasEqualNorm reports whether two normalizations compute the same. Both or neither are nil.
func hasEqualNorm(a, b *Affine) bool {
	if a == nil {
		return true
	}
	return a.Clip == b.Clip && a.Kind == b.Kind && slices.Equal(a.A, b.A) && slices.Equal(a.B, b.B)
}
