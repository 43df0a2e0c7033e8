package kernel

var (
	voxelNames = names{
		voxelize,
		"mode",
		[]string{"occupancy", "count", "sum", "mean", "max", "min", "first"},
	}
	outsideNames = names{voxelize, "outside", []string{"drop", "clip", "error"}}
)

func (m VoxelMode) String() string { return voxelNames.of(uint8(m)) }

// Featured says whether the mode reads features.
func (m VoxelMode) Featured() bool { return m >= Sum }

// UnmarshalText reads the name of a mode.
func (m *VoxelMode) UnmarshalText(b []byte) (err error) {
	*m, err = parse[VoxelMode](&voxelNames, string(b))
	return err
}

func (o Outside) String() string { return outsideNames.of(uint8(o)) }

// UnmarshalText reads the name of a policy.
func (o *Outside) UnmarshalText(b []byte) (err error) {
	*o, err = parse[Outside](&outsideNames, string(b))
	return err
}
