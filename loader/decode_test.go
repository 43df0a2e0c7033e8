package loader_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/video"
)

// Frames that a device decoded stay there: batches there are those of the host, in every order,
// size and layout, also where the device has no room for residents, or the host decodes some; and
// all of its memory goes back.
func TestFramesStayOnDevice(t *testing.T) {
	wants := map[string][][32]byte{}
	for _, x := range []struct {
		name   string
		change func(c *loader.Config, g *gpu)
		kept   bool // as planes
	}{
		{"global", func(c *loader.Config, g *gpu) {}, false},
		{"scaled", func(c *loader.Config, g *gpu) { c.ImageSize = []int{224, 224} }, false},
		{
			"letterbox",
			func(c *loader.Config, g *gpu) {
				c.ImageSize, c.ImageResize = []int{96, 224}, "letterbox"
			},
			false,
		},
		{"floats", func(c *loader.Config, g *gpu) { c.ImageDType = loader.Float32 }, false},
		{"pool", func(c *loader.Config, g *gpu) { c.Shuffle = loader.Pool }, true},
		{
			"pool, scaled",
			func(c *loader.Config, g *gpu) { c.Shuffle, c.ImageSize = loader.Pool, []int{84, 84} },
			false,
		},
		{
			"pool, no room",
			func(c *loader.Config, g *gpu) { c.Shuffle, c.DeviceMemory = loader.Pool, 1 },
			false,
		},
		{
			"pool, scaled, no memory",
			func(c *loader.Config, g *gpu) {
				c.Shuffle, c.ImageSize, g.most = loader.Pool, []int{84, 84}, 16<<20
			},
			false,
		},
		{"both", func(c *loader.Config, g *gpu) { c.Decode = loader.DecodeAuto }, false},
		{
			"pool, both",
			func(c *loader.Config, g *gpu) { c.Shuffle, c.Decode = loader.Pool, loader.DecodeAuto },
			false,
		},
		{"windows", func(c *loader.Config, g *gpu) {
			c.Deltas = loader.Deltas{
				{Key: "observation.images.cam_high", Offsets: []float64{-0.1, 0}},
			}
		}, false},
		{"failing", func(c *loader.Config, g *gpu) { g.fails = 60 }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			cfg := loader.Config{
				Order:   loader.Order{BatchSize: 16, Seed: 5, Shuffle: loader.Global},
				Runtime: loader.Runtime{Threads: 2},
				Device:  loader.Device{DecodeDevice: 1, Raw: true},
			}
			g := &gpu{engines: &engines{}}
			device(t, g)
			g.Backend, _ = video.ActiveBackend()
			x.change(&cfg, g)
			host := cfg
			host.Decode, host.DeviceMemory = loader.DecodeCPU, 0
			asked := fmt.Sprint(host) // several ways ask for the same batches
			if wants[asked] == nil {
				wants[asked], _ = batches(t, host)
			}
			want := wants[asked]
			if cfg.Decode == "" {
				cfg.Decode = loader.DecodeGPU
			}
			got, s := batches(t, cfg)
			if !slices.Equal(got, want) {
				t.Error("other batches than on the host")
			}
			t.Logf(
				"%d made there, %d kept, %d sent; %+v, %+v",
				g.made.Load(),
				g.kept.Load(),
				g.sent.Load(),
				s.Decoding[0],
				s.Memory,
			)
			if g.made.Load() == 0 && x.name != "letterbox" && x.name != "pool" ||
				x.kept != (g.kept.Load() > 0) && cfg.Decode == loader.DecodeGPU {
				t.Error("frames did not stay on the device")
			}
			if len(g.live) > 0 {
				t.Errorf("%d pieces of the device's memory were not given back", len(g.live))
			}
		})
	}
}

// Large batches on a device are planned together as small ones are: their memory is not the host's.
func TestHorizonOnDevice(t *testing.T) {
	for decode, want := range map[loader.Decode]int{loader.DecodeCPU: 1, loader.DecodeGPU: 8} {
		g := &gpu{engines: &engines{}}
		device(t, g)
		g.Backend, _ = video.ActiveBackend()
		cfg := loader.Config{
			Order:   loader.Order{BatchSize: 96},
			Runtime: loader.Runtime{Threads: 2, Prefetch: 8},
			Device:  loader.Device{DecodeDevice: 1, Raw: true, Decode: decode},
		}
		cfg.ImageSize = []int{480, 640}
		l, err := loader.New(t.Context(), testdata(t, "g1_h264_v30"), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Stats().Horizon; got != want {
			t.Errorf("decode=%s, batches of 88 MB: %d planned together, want %d", decode, got, want)
		}
		l.Close()
	}
}

// device registers engines for the test.
func device(t *testing.T, e video.DeviceBackend) {
	t.Helper()
	b, err := video.ActiveBackend()
	if err != nil {
		t.Skip(err)
	}
	if own, is := e.(*engines); is {
		own.Backend = b
	}
	video.RegisterDevice(func(number int) (video.DeviceBackend, error) {
		if number != 1 {
			return nil, &robocache.Error{
				Class: robocache.ErrUnsupported,
				Op:    "CUDA",
				Msg:   "there is no such device",
			}
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
	return take(t, l, 12), l.Stats()
}

// take gives sums of the next batches.
func take(t *testing.T, l *loader.Loader, n int) (sums [][32]byte) {
	t.Helper()
	ctx := context.Background()
	for len(sums) < n {
		b, err := l.Next(ctx)
		if errors.Is(err, io.EOF) { // between epochs
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		for _, f := range l.Fields() {
			if x := b.Tensor(f.Key); x != nil {
				data := x.Data
				if x.Device == 2 {
					data = slices.Clone(data)
					invert(data)
				}
				h.Write(data)
			}
		}
		sums = append(sums, [32]byte(h.Sum(nil)))
		b.Release()
	}
	return sums
}

// TestCacheOnDevice checks that frames that fit into device memory are decoded once, by host or
// device, that others are decoded again, and that batches equal the host's.
func TestCacheOnDevice(t *testing.T) {
	ds := testdata(t, "g1_h264_v30")
	wants := map[string][][32]byte{}
	for _, x := range []struct {
		name   string
		budget loader.Bytes
		change func(c *loader.Config)
		whole  bool
	}{
		{"planes", 1 << 30, func(*loader.Config) {}, true},
		{"pixels", 1 << 30, func(c *loader.Config) { c.ImageSize = []int{96, 128} }, true},
		{"both", 1 << 30, func(c *loader.Config) { c.Decode = loader.DecodeAuto }, true},
		{"pool", 1 << 30, func(c *loader.Config) { c.Shuffle = loader.Pool }, true},
		{"a part", 20 << 20, func(*loader.Config) {}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			g := &gpu{engines: &engines{}}
			device(t, g)
			g.Backend, _ = video.ActiveBackend()
			cfg := loader.Config{
				Order:   loader.Order{BatchSize: 32, Seed: 5, Shuffle: loader.Global},
				Runtime: loader.Runtime{Threads: 2, Prefetch: 1},
				Device:  loader.Device{Decode: loader.DecodeGPU, DecodeDevice: 1, Raw: true},
			}
			cfg.Episodes = []int{1}
			x.change(&cfg)
			host := cfg
			host.Decode = loader.DecodeCPU
			cfg.Cache, cfg.DeviceMemory = "device", x.budget
			open := func(cfg loader.Config) *loader.Loader {
				l, err := loader.New(t.Context(), ds, cfg)
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			l, asked := open(cfg), fmt.Sprint(host)
			decoded := func() (n int64) {
				for _, d := range l.Stats().Decoding {
					n += d.GPU + d.CPU
				}
				return n
			}
			n := int(l.Len())
			got := take(t, l, n)
			first := decoded()
			got = append(got, take(t, l, n)...)
			c := l.Stats().Cache
			t.Logf(
				"%d batches an epoch, %d frames decoded, then %d; %+v, %+v",
				n,
				first,
				decoded()-first,
				c,
				l.Stats().Memory,
			)
			if wants[asked] == nil {
				h := open(host)
				wants[asked] = take(t, h, 2*n)
				h.Close()
			}
			if !slices.Equal(got, wants[asked]) {
				t.Error("other batches than on the host")
			}
			if c == nil || c.Where != "device" || c.Hits == 0 || c.Full == x.whole ||
				x.whole != (decoded() == first) {
				t.Errorf("%+v, %d decoded, then %d", c, first, decoded()-first)
			}
			if m := l.Stats().Memory; m.Device != int64(x.budget) ||
				m.DevicePeak > int64(x.budget) ||
				m.DevicePeak == 0 ||
				m.KeptBytes > 0 {
				t.Errorf("%+v", m)
			}
			l.Close()
			if len(g.live) > 0 {
				t.Errorf("%d pieces of the device's memory were not given back", len(g.live))
			}
		})
	}
	for want, cfg := range map[string]loader.Config{
		"no frames of these batches are made on a device": {
			CacheOptions: loader.CacheOptions{Cache: "device"},
			Device:       loader.Device{Raw: true, DeviceMemory: 1 << 30},
		},
		"DeviceMemory: expected": {
			CacheOptions: loader.CacheOptions{Cache: "device"},
			Device:       loader.Device{Raw: true, Decode: loader.DecodeGPU},
		},
		"in place of CacheBudget": {
			CacheOptions: loader.CacheOptions{Cache: "device", CacheBudget: 1 << 30},
			Device:       loader.Device{Raw: true, DeviceMemory: 1 << 30},
		},
	} {
		if _, err := loader.New(t.Context(), ds, cfg); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

// TestDecodeOnDevice checks that the decoding processor changes no batch. Streams that a device
// decodes differently or not at all stay on the CPU, and statistics name them.
func TestDecodeOnDevice(t *testing.T) {
	base := loader.Config{
		Order:   loader.Order{BatchSize: 16, Seed: 5, Shuffle: loader.Global},
		Runtime: loader.Runtime{Threads: 2},
		Device:  loader.Device{DecodeDevice: 1},
	}
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
		{"lies", &engines{lies: true}, loader.DecodeAuto, "differ from the CPU's", false},
		{"failing", &engines{fails: 60}, loader.DecodeGPU, "the device failed", true},
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
			if d.Device != "a device of the test" || (d.GPU > 0) != x.gpu && x.onCPU == "" ||
				d.CPU == 0 ||
				(len(d.OnCPU) > 0) != (x.onCPU != "") {
				t.Errorf("%+v", d)
			}
			for _, c := range d.OnCPU {
				if !strings.Contains(c.Reason, x.onCPU) || c.Codec != video.H264 ||
					!strings.HasSuffix(c.File, ".mp4") {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// A device that is lost ends the loader with its error, at once: nothing is decoded elsewhere for
// it, and no episode is skipped.
func TestLostDevice(t *testing.T) {
	device(t, &engines{fails: 60, class: robocache.ErrTemporary})
	l, err := loader.New(
		t.Context(),
		testdata(t, "g1_h264_v30"),
		loader.Config{
			Order:  loader.Order{BatchSize: 16, OnBadEpisode: loader.Skip},
			Device: loader.Device{DecodeDevice: 1, Decode: loader.DecodeGPU},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for ; err == nil; n++ {
		var b *loader.Batch
		if b, err = l.Next(t.Context()); err == nil {
			b.Release()
		}
	}
	if !errors.Is(err, robocache.ErrTemporary) ||
		!strings.Contains(err.Error(), "the device failed") ||
		len(l.Stats().BadEpisodes) > 0 {
		t.Errorf("behind %d batches: %v; %v", n, err, l.Stats().BadEpisodes)
	}
}

// TestDecodeWithoutDevice checks that without a device "gpu" is an error that names the device, and
// "auto" decodes on the CPU.
func TestDecodeWithoutDevice(t *testing.T) {
	device(t, &engines{})
	ds := testdata(t, "g1_h264_v30")
	if _, err := loader.New(t.Context(), ds,
		loader.Config{Device: loader.Device{Decode: loader.DecodeGPU}}); !errors.Is(err,
		robocache.ErrUnsupported) || !strings.Contains(err.Error(), "no such device") {
		t.Error(err)
	}
	l, err := loader.New(
		t.Context(),
		ds,
		loader.Config{Device: loader.Device{Decode: loader.DecodeAuto}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !slices.ContainsFunc(
		l.Notes(),
		func(n string) bool { return strings.Contains(n, "no such device") },
	) ||
		len(l.Stats().Decoding) != 0 {
		t.Error(l.Notes(), l.Stats().Decoding)
	}
	if _, err := loader.New(t.Context(), ds,
		loader.Config{Device: loader.Device{Decode: "npu"}}); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}
