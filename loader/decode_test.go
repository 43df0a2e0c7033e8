package loader_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/video"
)

// engines stands for a GPU's: the CPU's decoders, less what the test takes away.
type engines struct {
	video.Backend
	none   bool  // no engine for the codec
	lies   bool  // one bit of each frame is another
	fails  int64 // each packet from so many on is an error; 0: none
	packet atomic.Int64
}

func (e *engines) Version() string { return "a device of the test" }

func (e *engines) Engines(video.Codec) int {
	if e.none {
		return 0
	}
	return 2
}

func (e *engines) Supports(codec video.Codec) error {
	if e.none {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "decode", Msg: "no engine for " + string(codec)}
	}
	return e.Backend.Supports(codec)
}

func (e *engines) NewDecoder(entry *video.SampleEntry) (video.Decoder, error) {
	d, err := e.Backend.NewDecoder(entry)
	if err != nil {
		return nil, err
	}
	return &engine{d, e}, nil
}

type engine struct {
	video.Decoder
	e *engines
}

func (d *engine) Send(packet []byte, pts int64) error {
	if n := d.e.packet.Add(1); d.e.fails > 0 && n >= d.e.fails {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "decode", Msg: "the device is lost"}
	}
	return d.Decoder.Send(packet, pts)
}

func (d *engine) Receive() (video.Frame, int64, bool, error) {
	pic, pts, ok, err := d.Decoder.Receive()
	if p, is := pic.(video.PlanarFrame); is && d.e.lies {
		return lie{p}, pts, ok, err
	}
	return pic, pts, ok, err
}

type lie struct{ video.PlanarFrame }

func (l lie) CopyPlanes(dst []byte) error {
	err := l.PlanarFrame.CopyPlanes(dst)
	dst[len(dst)/3] ^= 1
	return err
}

// device registers engines for the test.
func device(t *testing.T, e *engines) {
	t.Helper()
	b, err := video.ActiveBackend()
	if err != nil {
		t.Skip(err)
	}
	e.Backend = b
	video.RegisterDevice(func(number int) (video.DeviceBackend, error) {
		if number != 1 {
			return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "CUDA", Msg: "there is no such device"}
		}
		return e, nil
	})
	t.Cleanup(func() { video.RegisterDevice(nil) })
}

// batches hashes an epoch, and gives its statistics.
func batches(t *testing.T, cfg loader.Config) (sums [][32]byte, s loader.Stats) {
	t.Helper()
	ds := testdata(t, "g1_h264_v30")
	ctx := context.Background()
	l, err := loader.New(ctx, ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 12 {
		b, err := l.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		for _, f := range l.Fields() {
			if x := b.Tensor(f.Key); x != nil {
				h.Write(x.Data)
			}
		}
		sums = append(sums, [32]byte(h.Sum(nil)))
		b.Release()
	}
	return sums, l.Stats()
}

// Where frames are decoded changes no batch; what a device decodes otherwise, or not at all, stays on the CPU, and statistics say it.
func TestDecodeOnDevice(t *testing.T) {
	base := loader.Config{Order: loader.Order{BatchSize: 16, Seed: 5, Shuffle: loader.Global}, Memory: loader.Memory{Threads: 2}, Device: loader.Device{DecodeDevice: 1}}
	with := func(d loader.Decode) loader.Config {
		c := base
		c.Decode = d
		return c
	}
	want, s := batches(t, with(loader.DecodeCPU))
	if len(s.Decoding) != 0 {
		t.Errorf("%+v", s.Decoding)
	}
	for _, x := range []struct {
		name   string
		e      *engines
		decode loader.Decode
		onCPU  string
		gpu    bool
	}{
		{"gpu", &engines{}, loader.DecodeGPU, "", true},
		{"auto", &engines{}, loader.DecodeAuto, "", true},
		{"no engine", &engines{none: true}, loader.DecodeGPU, "no engine for h264", false},
		{"lies", &engines{lies: true}, loader.DecodeAuto, "otherwise than the CPU", false},
		{"lost", &engines{fails: 60}, loader.DecodeGPU, "the device is lost", true},
	} {
		t.Run(x.name, func(t *testing.T) {
			device(t, x.e)
			got, s := batches(t, with(x.decode))
			if !slices.Equal(got, want) {
				t.Error("other batches than on the CPU")
			}
			if len(s.Decoding) != 1 {
				t.Fatalf("%+v", s.Decoding)
			}
			d := s.Decoding[0]
			t.Logf("%+v", d)
			if d.Device != "a device of the test" || (d.GPU > 0) != x.gpu && x.onCPU == "" || d.CPU == 0 || (len(d.OnCPU) > 0) != (x.onCPU != "") {
				t.Errorf("%+v", d)
			}
			for _, c := range d.OnCPU {
				if !strings.Contains(c.Reason, x.onCPU) || c.Codec != video.H264 || !strings.HasSuffix(c.File, ".mp4") {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// Without the device "gpu" is an error that says so, and "auto" goes on without.
func TestDecodeWithoutDevice(t *testing.T) {
	device(t, &engines{})
	ds := testdata(t, "g1_h264_v30")
	if _, err := loader.New(t.Context(), ds, loader.Config{Device: loader.Device{Decode: loader.DecodeGPU}}); !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), "no such device") {
		t.Error(err)
	}
	l, err := loader.New(t.Context(), ds, loader.Config{Device: loader.Device{Decode: loader.DecodeAuto}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !slices.ContainsFunc(l.Notes(), func(n string) bool { return strings.Contains(n, "no such device") }) || len(l.Stats().Decoding) != 0 {
		t.Error(l.Notes(), l.Stats().Decoding)
	}
	if _, err := loader.New(t.Context(), ds, loader.Config{Device: loader.Device{Decode: "npu"}}); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}
