package images_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/goatnote-inc/robocache/kernel/cuda/images"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/build"
)

const library = "../../../.build/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"

var (
	update = flag.Bool("update", false, "compile what has changed into data")
	force  = flag.Bool("f", false, "with -update: also what has not changed")
)

// TestUpdate writes the images if -update is given: scripts/cuda-images.sh.
func TestUpdate(t *testing.T) {
	if !*update {
		t.Skip("-update is not given")
	}
	c, err := build.FindCompiler(library)
	if err == nil {
		err = build.Update("../src", "data", c, *force, t.Logf)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestImagesAreOfTheSources covers cuda.G2: the images belong to the sources.
func TestImagesAreOfTheSources(t *testing.T) {
	names, err := build.Names("../src")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	have := map[string]*images.Manifest{}
	for _, m := range images.Manifests() {
		have[m.Source] = m
	}
	for _, n := range names {
		s, err := build.Read("../src", n)
		if err != nil {
			t.Fatal(err)
		}
		m := have[n]
		if m == nil || m.Hash != s.Hash() {
			t.Errorf("the images of %s.cu are not of this source: scripts/cuda-images.sh", n)
			continue
		}
		delete(have, n)
		all, err := images.All(n)
		if err != nil || len(all) != len(build.Targets) || len(m.Kernels) == 0 {
			t.Errorf("%s: %d images, %d kernels, %v", n, len(all), len(m.Kernels), err)
		}
		for _, k := range m.Kernels {
			if images.Source(k) != n {
				t.Errorf("kernel %s is in %s and in %s", k, n, images.Source(k))
			}
		}
	}
	for n := range have {
		t.Errorf("images of %s, which is no source", n)
	}
	total := 0
	for _, m := range images.Manifests() {
		b, err := os.ReadFile("data/" + m.Source + ".zst")
		if err != nil {
			t.Fatal(err)
		}
		total += len(b)
	}
	if t.Logf("%d bytes packed", total); total > 3<<20 {
		t.Errorf("the images take %d bytes, more than 3 MB", total)
	}
}

// TestRebuild covers cuda.G2: the same source gives the same bytes, if the compiler is available.
func TestRebuild(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles every source")
	}
	c, err := build.FindCompiler(library)
	if err != nil {
		t.Skip("scripts/cuda-images.sh fetches the compiler: ", err)
	}
	version, err := c.Version()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range images.Manifests() {
		if m.NVRTC != version {
			t.Skipf("images by NVRTC %s, here is %s", m.NVRTC, version)
		}
		all, err := images.All(m.Source)
		if err != nil {
			t.Fatal(err)
		}
		s, err := build.Read("../src", m.Source)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range m.Images {
			if e.Arch != 90 || e.PTX { // compiling all targets takes half a minute per source
				continue
			}
			b, err := s.Compile(c, e)
			if err != nil || !bytes.Equal(b, all[i].Code) {
				t.Errorf(
					"%s for %s: %d bytes, the image has %d: %v",
					m.Source,
					all[i].Name(),
					len(b),
					len(all[i].Code),
					err,
				)
			}
		}
	}
}

// TestFor checks the images that a chip gets, best first.
func TestFor(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		want         []string
	}{
		{8, 0, []string{"sm_80", "compute_80"}},
		{8, 6, []string{"sm_86", "sm_80", "compute_80"}},
		{8, 7, []string{"sm_86", "sm_80", "compute_80"}},
		{8, 9, []string{"sm_89", "sm_86", "sm_80", "compute_80"}},
		{9, 0, []string{"sm_90", "compute_80"}},
		{10, 0, []string{"sm_100", "compute_80"}},
		{10, 3, []string{"sm_100", "compute_80"}},
		{12, 0, []string{"compute_80"}},
		{7, 5, nil},
	} {
		got, err := images.For("probe", c.major, c.minor)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%d.%d: %d images, %v", c.major, c.minor, len(got), err)
			continue
		}
		for i := range got {
			if got[i].Name() != c.want[i] {
				t.Errorf("%d.%d: %s at %d, not %s", c.major, c.minor, got[i].Name(), i, c.want[i])
			}
		}
	}
	if _, err := images.For("none", 9, 0); err == nil {
		t.Error("images of no source")
	}
}
