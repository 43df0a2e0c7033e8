package convert_test

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/stats"
)

// BenchmarkConvert copies AV1 episodes and computes all statistics except those of images. Bytes
// are those of the source.
func BenchmarkConvert(b *testing.B) {
	from := data(b, "g1_v30_drift")
	var size int64
	_ = filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(p)) != "oracle" {
			if i, err := d.Info(); err == nil {
				size += i.Size()
			}
		}
		return nil
	})
	src := open(b, from)
	for name, frames := range map[string]stats.FramePolicy{
		"rows":          stats.NoFrames,
		"rows+pictures": stats.SampledFrames,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				_, err := ToLeRobot(b.Context(), src, filepath.Join(b.TempDir(), "out"),
					Options{Frames: frames})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
