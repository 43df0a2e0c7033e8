package delta_test

import (
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func openTable(t testing.TB, uri string, opt ...robocache.OpenOptions) robocache.Dataset {
	t.Helper()
	d, err := robocache.Open(t.Context(), uri, opt...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// table writes a dataset as a table. The options of the writer are given as key, value.
func table(
	t testing.TB,
	src robocache.Dataset,
	dst string,
	options ...string,
) *robocache.WriteReport {
	t.Helper()
	opt := convert.Options{}
	opt.Options = map[string]string{}
	for i := 0; i < len(options); i += 2 {
		opt.Options[options[i]] = options[i+1]
	}
	r, err := convert.Write(t.Context(), src, "delta", dst, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func made(t testing.TB, opt synth.Options) *synth.Dataset {
	t.Helper()
	d, err := synth.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSuite runs the suite of all formats on tables with video, with images, and with partitions.
func TestSuite(t *testing.T) {
	dir := t.TempDir()
	table(t, openTable(t, realdata.Path(t, "g1_v30_exact")), filepath.Join(dir, "video"))
	table(
		t,
		made(
			t,
			synth.Options{
				Episodes: 4,
				Seconds:  0.5,
				Spread:   0.5,
				Cameras:  1,
				Codec:    "png",
				Depth:    true,
			},
		),
		filepath.Join(dir, "images"),
		"partition",
		"task",
	)
	table(
		t,
		made(t, synth.Options{Episodes: 4, Seconds: 0.5, Cameras: 1, Codec: "jpeg"}),
		filepath.Join(dir, "source"),
		"partition",
		"source",
	)
	for _, name := range []string{"video", "images", "source"} {
		formattest.Run(t, formattest.Fixture{URI: filepath.Join(dir, name), Format: "delta"})
	}
}
