package kernel

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

var voxelNames = [...]string{"occupancy", "count", "sum", "mean", "max", "min", "first"}

func (m VoxelMode) String() string {
	if int(m) < len(voxelNames) {
		return voxelNames[m]
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}

// Featured says whether the mode reads features.
func (m VoxelMode) Featured() bool { return m >= Sum }

// ParseVoxelMode finds a mode by its name.
func ParseVoxelMode(name string) (VoxelMode, error) {
	for i, n := range voxelNames {
		if n == name {
			return VoxelMode(i), nil
		}
	}
	return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: voxelize, Msg: "Invalid mode", Want: "occupancy, count, sum, mean, max, min or first", Got: strconv.Quote(name)}
}

// MarshalText makes VoxelMode a string in JSON.
func (m VoxelMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name of a mode.
func (m *VoxelMode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseVoxelMode(string(b))
	return err
}

var outsideNames = [...]string{"drop", "clip", "error"}

func (o Outside) String() string {
	if int(o) < len(outsideNames) {
		return outsideNames[o]
	}
	return "outside(" + strconv.Itoa(int(o)) + ")"
}

// ParseOutside finds a policy by its name.
func ParseOutside(name string) (Outside, error) {
	for i, n := range outsideNames {
		if n == name {
			return Outside(i), nil
		}
	}
	return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: voxelize, Msg: "Invalid outside", Want: "drop, clip or error", Got: strconv.Quote(name)}
}

// MarshalText makes Outside a string in JSON.
func (o Outside) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads the name of a policy.
func (o *Outside) UnmarshalText(b []byte) (err error) {
	*o, err = ParseOutside(string(b))
	return err
}
