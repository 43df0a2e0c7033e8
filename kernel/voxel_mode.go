package kernel

var (
	voxelNames = enumNames{
		voxelize,
		"mode",
		[]string{"occupancy", "count", "sum", "mean", "max", "min", "first"},
	}
	outsideNames = enumNames{voxelize, "outside", []string{"drop", "clip", "error"}}
)

// String returns the name of the mode.
func (m VoxelMode) String() string { return voxelNames.nameOf(uint8(m)) }

// Featured reports whether the mode reads features.
func (m VoxelMode) Featured() bool { return m >= Sum }

// UnmarshalText sets m to the mode with the given name.
func (m *VoxelMode) UnmarshalText(b []byte) (err error) {
	*m, err = parseName[VoxelMode](&voxelNames, string(b))
	return err
}

// String returns the name of the policy.
func (o Outside) String() string { return outsideNames.nameOf(uint8(o)) }

// UnmarshalText sets o to the policy with the given name.
func (o *Outside) UnmarshalText(b []byte) (err error) {
	*o, err = parseName[Outside](&outsideNames, string(b))
	return err
}
