package lerobot_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/video"
)

// TestRecorderWaits checks that a row that does not fit into the queue is not added before its
// deadline, and is added once the queue has capacity.
func TestRecorderWaits(t *testing.T) {
	const h, w = 64, 64
	cfg := write.Config{
		FPS:   robocache.Rate{Num: 30, Den: 1},
		Video: write.VideoConfig{Codec: "h264"},
		Features: []robocache.Feature{
			{Key: "x", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{1}},
			{
				Key:      "cam",
				Kind:     robocache.KindVideo,
				DType:    robocache.Uint8,
				Shape:    []int{h, w, 3},
				Height:   h,
				Width:    w,
				Channels: 3,
			},
		},
	}
	if err := video.CanEncode(context.Background(),
		video.EncodeConfig{Codec: video.H264, Width: w, Height: h, Rate: cfg.FPS}); err != nil {
		t.Skip(err)
	}
	// capacity for one image
	r, err := lerobot.Record(
		context.Background(),
		t.TempDir()+"/set",
		cfg,
		write.RecordOptions{QueueBytes: h * w * 3},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Abort()
	image := make([]byte, h*w*3)
	rows, late := 0, 0
	for deadline := time.Now().Add(30 * time.Second); rows < 40 && time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
		_, err := r.AddFrame(
			ctx,
			"t",
			0,
			[][]byte{binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(rows))), image},
			nil,
		)
		cancel()
		switch {
		case err == nil:
			rows++
		case errors.Is(err, context.DeadlineExceeded):
			late++
		default:
			t.Fatal(err)
		}
	}
	if err := r.SaveEpisode(context.Background()); err != nil {
		t.Fatal(err)
	}
	c := r.Counted()
	if c.Frames != 40 || late == 0 || c.Waits < int64(late) || c.QueuePeak != h*w*3 {
		t.Fatalf("%+v, %d late", c, late)
	}
	if err := r.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := r.SaveEpisode(context.Background()); !errors.Is(err, robocache.ErrMisuse) {
		t.Fatalf("after Close: %v", err)
	}
}
