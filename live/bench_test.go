package live_test

import (
	"slices"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/video"
)

// BenchmarkObserve measures the time from pushing decoded frames of three cameras and a state to
// the observation, without decoding.
func BenchmarkObserve(b *testing.B) {
	ds, err := robocache.Open(b.Context(), "../testdata/shared/g1_h264_v30")
	if err != nil {
		b.Fatal(err)
	}
	defer ds.Close()
	skipWithoutDecoder(b, ds)
	var camera string
	for _, f := range ds.Info().Features {
		if f.Kind == robocache.KindVideo {
			camera = f.Key
		}
	}
	refs := make([]robocache.FrameRef, 1)
	if err := ds.Frames(b.Context(), camera, []robocache.Row{{}}, refs); err != nil {
		b.Fatal(err)
	}
	for name, size := range map[string]string{
		"AsRecorded": "",
		"640x480":    `, "image_size": [480, 640]`,
		"224x224":    `, "image_size": [224, 224], "image_dtype": "float32"`,
	} {
		b.Run(name, func(b *testing.B) {
			err := video.EachFrame(b.Context(), video.LibraryOf(ds), refs, video.Each{},
				func(_ []int, f video.Frame) error { return observeFrames(b, f, size) })
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// observeFrames pushes a frame to three cameras again and again.
func observeFrames(b *testing.B, f video.Frame, size string) error {
	keys := []string{"camera0", "camera1", "camera2", "state"}
	c := numbersContract(b, `{"align": {"hz": 50}`+size+`}`, keys...)
	w, h := f.Size()
	for i := range 3 {
		c.Streams[i] = contract.Stream{Feature: robocache.Feature{
			Key: keys[i], Kind: robocache.KindVideo, DType: robocache.Uint8,
			Shape: []int{h, w, 3}, Height: h, Width: w, Channels: 3,
		}}
	}
	l := openLive(b, c)
	var o *live.Observation
	var times []time.Duration
	at, row := int64(0), pair(1, 2)
	for b.Loop() {
		at += 20 * ms
		begin := time.Now()
		for _, key := range keys[:3] {
			x := live.Sample{Stamp: at, Arrival: at, Frame: f.(video.PlanarFrame)}
			if err := l.Push(key, &x); err != nil {
				return err
			}
		}
		if err := l.Push("state", &live.Sample{Stamp: at, Arrival: at, Data: row}); err != nil {
			return err
		}
		var err error
		if o, err = l.Observe(b.Context(), at, 0, o); err != nil {
			return err
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e6, "p50-ms")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e6, "p99-ms")
	b.ReportMetric(float64(w*h), "pixels")
	b.ReportAllocs()
	return nil
}
