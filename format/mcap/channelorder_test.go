package mcap_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestChannelOrder reads the first pixel, (200, 30, 30), of images whose encoding does or does not
// state the order of the channels.
func TestChannelOrder(t *testing.T) {
	const camera = "camera.image_raw"
	for _, c := range []struct {
		encoding, option string
		mapping          string
		bgr, finding     bool
		misuse           bool
	}{
		{encoding: "8UC3", finding: true},
		{encoding: "8UC3", option: "rgb"},
		{encoding: "8UC3", option: "bgr", bgr: true},
		{encoding: "8UC3", option: "camera.image_raw=bgr", bgr: true},
		{encoding: "8UC3", option: "/camera/image_raw=bgr", bgr: true},
		{encoding: "8UC3", option: "image_raw=bgr", bgr: true},
		{encoding: "8UC3", mapping: "bgr", bgr: true},
		{encoding: "8UC4", finding: true},
		{encoding: "8UC4", option: "bgr", bgr: true},
		{encoding: "bgr8", bgr: true},
		{encoding: "rgb8"},
		{encoding: "bgr8", option: "camera.image_raw=rgb"},
		{encoding: "rgb8", option: "bgr", misuse: true},
		{encoding: "8UC3", option: "gbr", misuse: true},
		{encoding: "8UC3", option: "wrist=bgr", misuse: true},
		{encoding: "yuv422", option: "camera.image_raw=bgr", misuse: true},
	} {
		t.Run(c.encoding+" "+c.option+c.mapping, func(t *testing.T) {
			open := robocache.OpenOptions{}
			if c.option != "" {
				open.Options = map[string]string{"channel_order": c.option}
			}
			if c.mapping != "" {
				open.Map = &robocache.Mapping{Streams: map[string]robocache.StreamMapping{
					camera: {From: []string{camera}, ChannelOrder: c.mapping},
				}}
			}
			ds, err := robocache.Open(t.Context(), cases.Make(t, "M03", c.encoding, "t.mcap"), open)
			if c.misuse {
				if !errors.Is(err, robocache.ErrMisuse) {
					t.Errorf("opened with %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer ds.Close()
			finding := slices.ContainsFunc(ds.Info().Findings, func(f robocache.Finding) bool {
				return f.Code == "channel-order-unknown" && f.Where["stream"] == camera &&
					f.Severity == robocache.SeverityWarning && f.Hint != ""
			})
			if finding != c.finding {
				t.Errorf("findings %v", ds.Info().Findings)
			}
			out := make([]robocache.FrameRef, 1)
			if err := ds.Frames(t.Context(), camera, []robocache.Row{{}}, out); err != nil {
				t.Fatal(err)
			}
			if r := out[0].Raw; r == nil || r.BGR != c.bgr || r.Channels != 3 {
				t.Errorf("raw image %+v, want BGR %v", r, c.bgr)
			}
		})
	}
}
