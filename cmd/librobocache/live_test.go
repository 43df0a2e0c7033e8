//go:build cgo

package main

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live"
)

// TestFillSample checks that the memory of a client is used only as its dtype and shape describe.
func TestFillSample(t *testing.T) {
	state := robocache.Feature{
		Key: "x", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{2},
	}
	scalar, cloud := state, state
	scalar.Shape, cloud.Shape = []int{1}, []int{-1, 4}
	camera := robocache.Feature{
		Kind: robocache.KindImage, DType: robocache.Uint8, Height: 2, Width: 3, Channels: 3,
	}
	depth := camera
	depth.DType, depth.Channels = robocache.Uint16, 1
	text := robocache.Feature{Kind: robocache.KindText, DType: robocache.String}
	for _, x := range []struct {
		name    string
		feature *robocache.Feature
		dtype   robocache.DType
		shape   []int // nil: bytes
		size    int
		fits    bool
	}{
		{"row", &state, robocache.Float32, []int{2}, 8, true},
		{"other dtype", &state, robocache.Float64, []int{2}, 16, false},
		{"other shape", &state, robocache.Float32, []int{3}, 12, false},
		{"too few bytes", &state, robocache.Float32, []int{2}, 7, false},
		{"too many bytes", &state, robocache.Float32, []int{2}, 9, false},
		{"negative", &state, robocache.Float32, []int{-2}, 8, false},
		{"overflow", &state, robocache.Float32, []int{1 << 30, 1 << 30, 1 << 30, 16}, 0, false},
		{"bytes", &state, 0, nil, 8, false},
		{"scalar", &scalar, robocache.Float32, []int{}, 4, true},
		{"cloud", &cloud, robocache.Float32, []int{5, 4}, 80, true},
		{"empty cloud", &cloud, robocache.Float32, []int{0, 4}, 0, true},
		{"other cloud", &cloud, robocache.Float32, []int{5, 3}, 60, false},
		{"pixels", &camera, robocache.Uint8, []int{2, 3, 3}, 18, true},
		{"channels first", &camera, robocache.Uint8, []int{3, 2, 3, 1}, 18, false},
		{"floats", &camera, robocache.Float32, []int{2, 3, 3}, 72, false},
		{"file", &camera, 0, nil, 9, true},
		{"depth", &depth, robocache.Uint16, []int{2, 3}, 12, true},
		{"depth as colour", &depth, robocache.Uint8, []int{2, 3, 3}, 18, false},
		{"text", &text, 0, nil, 3, true},
		{"no text", &text, robocache.Uint8, []int{3}, 3, false},
	} {
		v := givenValue{
			isTensor: x.shape != nil, dtype: x.dtype, shape: x.shape, data: make([]byte, x.size),
		}
		var s live.Sample
		err := v.fillSample(&s, x.feature)
		if (err == nil) != x.fits || err != nil && !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
