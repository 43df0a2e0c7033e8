package column

import (
	"slices"
)

// CanShareLaunch says whether two sources' columns may share a launch: one normalisation and one rule for all rows.
func (op *DeviceOp) CanShareLaunch(o *DeviceOp, c, d *Column) bool {
	if o == nil || op.HasDraws != o.HasDraws || (op.Norm == nil) != (o.Norm == nil) {
		return false
	}
	if op.HasDraws && (c.Image().Width != d.Image().Width || c.Image().Height != d.Image().Height) {
		return false
	}
	if a, b := op.Norm, o.Norm; a != nil && (a.Clip != b.Clip || a.Kind != b.Kind || !slices.Equal(a.A, b.A) || !slices.Equal(a.B, b.B)) {
		return false
	}
	return op.OutDType == o.OutDType && op.Elements == o.Elements && op.IsUnitRange == o.IsUnitRange && op.HasPairs == o.HasPairs && op.Rule.Mode == o.Rule.Mode && op.Rule.Period == o.Rule.Period && c.StoredDType == d.StoredDType && (c.Time == nil) == (d.Time == nil)
}
