//go:build cgo

package ffmpeg

import (
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache/video"
)

// Frames from fetched packets equal ffmpeg's, for every codec: in windows, in order, backwards,
// with groups in any order, and with decoders that continue from another group.
func TestFetchedFrames(t *testing.T) {
	all := clips
	if testing.Short() {
		all = []clip{
			clipNamed(t, "av1 g=2"),
			clipNamed(t, "hevc open gop"),
			clipNamed(t, "h264 open gop"),
		}
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			path, want := c.make(t), c.hashes(t)
			f := acquire(t, path)
			p := newPool(t, 0)
			r := newRand(11)
			n := len(want)
			spec := video.Spec{Pixel: video.YUVPlanes}
			for round := range 24 {
				set := make([]int, 1+r.IntN(12))
				at := r.IntN(n)
				for i := range set {
					switch round % 3 {
					case 0:
						set[i] = r.IntN(n)
					case 1:
						set[i] = min(at+i, n-1)
					default:
						set[i] = max(n-1-round-i, 0)
					}
				}
				groups := video.Plan(f.Index, set)
				b, err := video.Fetch(t.Context(), f, groups)
				if err != nil {
					t.Fatal(err)
				}
				var got []int
				for _, i := range r.Perm(len(groups)) {
					err := p.Decode(
						t.Context(),
						f,
						b,
						[]video.Group{groups[i]},
						func(k int, pic video.Frame) error {
							size, err := pic.Bytes(&spec)
							if err != nil {
								return err
							}
							planes := make([]byte, size)
							if err := pic.Convert(&spec, planes); err != nil {
								return err
							}
							if sum(planes) != want[k] {
								t.Errorf("frame %d is not ffmpeg's", k)
							}
							got = append(got, k)
							return nil
						},
					)
					if err != nil {
						t.Fatalf("%v: %v", groups[i], err)
					}
				}
				b.Release()
				slices.Sort(got)
				slices.Sort(set)
				if !slices.Equal(got, slices.Compact(set)) {
					t.Errorf("asked for %v, got %v", set, got)
				}
			}
			if s := p.Stats(); s.BytesRead > 3*s.BytesNeeded+1<<20 {
				t.Errorf("%+v", s)
			}
		})
	}
}
