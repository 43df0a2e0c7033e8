package column

import (
	"slices"
)

// CanShareLaunch reports whether columns of two sources can be finished by one kernel launch. They
// can if one normalization and one rule apply to the rows of both. op holds the operations of
// column, and other those of otherColumn.
func (op *DeviceOp) CanShareLaunch(other *DeviceOp, column, otherColumn *Column) bool {
	if other == nil || op.HasDraws != other.HasDraws || (op.Norm == nil) != (other.Norm == nil) {
		return false
	}
	if op.HasDraws && !augmentsAlike(column.Image(), otherColumn.Image()) {
		return false
	}
	if !hasEqualNorm(op.Norm, other.Norm) {
		return false
	}
	return op.OutDType == other.OutDType && op.Elements == other.Elements &&
		op.IsUnitRange == other.IsUnitRange && op.HasPairs == other.HasPairs &&
		op.Rule.Mode == other.Rule.Mode && op.Rule.Period == other.Rule.Period &&
		column.StoredDType == otherColumn.StoredDType &&
		(column.Time == nil) == (otherColumn.Time == nil)
}

// augmentsAlike reports whether one kernel can augment the frames of both columns.
func augmentsAlike(a, b *ImageColumn) bool {
	formA, formB := &a.Augment.Form, &b.Augment.Form
	return a.Width == b.Width && a.Height == b.Height && formA.Crop == formB.Crop &&
		formA.Scale == formB.Scale && formA.Rotates == formB.Rotates &&
		formA.ChannelsLast == formB.ChannelsLast
}

// hasEqualNorm reports whether two normalizations compute the same. Both or neither are nil.
func hasEqualNorm(a, b *Affine) bool {
	if a == nil {
		return true
	}
	return a.Clip == b.Clip && a.Kind == b.Kind && slices.Equal(a.A, b.A) && slices.Equal(a.B, b.B)
}
